//! Free ports on the loopback address, from the kernel.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// A server that is told its port can lose it to somebody between our look and its own bind; it is
/// then started again with another one, so often at most.
pub const ATTEMPTS: usize = 5;

/// Ports that were free a moment ago, all different.
pub fn free<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("asking for a free port")?;
        *port = listener.local_addr()?.port();
        // Held until all are drawn, or the kernel might hand out the same one twice.
        held.push(listener);
    }
    Ok(ports)
}
