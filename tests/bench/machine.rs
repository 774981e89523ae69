//! Who used the processor while something was measured.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::report::Report;

/// Above this share of the machine, somebody else's work is in the figures.
const FOREIGN_MAX: f64 = 0.10;

/// The processor time of the whole machine and of this process with all its children, in ticks.
pub struct Usage {
    busy: u64,
    ours: u64,
    at: Instant,
}

impl Usage {
    pub fn now() -> Result<Self> {
        Ok(Self { busy: busy()?, ours: used(std::process::id())?, at: Instant::now() })
    }

    /// The share of the machine that others have used since, from 0 to 1.
    pub fn foreign_share(&self) -> Result<f64> {
        let now = Self::now()?;
        let foreign = (now.busy - self.busy).saturating_sub(now.ours.saturating_sub(self.ours));
        let cores = std::thread::available_parallelism()?.get();
        #[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 ticks")]
        let share = foreign as f64 / ticks(self.at.elapsed()) / cores as f64;
        Ok(share)
    }

    /// Says so when the machine was not ours alone.
    pub fn tell(&self, report: &Report, what: &str) -> Result<()> {
        let share = self.foreign_share()?;
        if share > FOREIGN_MAX {
            let percent = share * 100.0;
            report.say(&format!(
                "     {what}: others used {percent:.0} % of the machine; measure again when it is quiet"
            ));
        }
        Ok(())
    }
}

/// The kernel counts in hundredths of a second wherever this runs.
fn ticks(duration: Duration) -> f64 {
    duration.as_secs_f64() * 100.0
}

/// All but idle and waiting for input and output.
fn busy() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    Ok(fields.iter().take(8).sum::<u64>() - idle)
}

/// The processor time that a process and every descendant have used, in ticks of 10 ms.
pub fn used(root: u32) -> Result<u64> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // One that ends meanwhile is none.
        if let Some((parent, used)) =
            fs::read_to_string(format!("/proc/{pid}/stat")).ok().as_deref().and_then(stat)
        {
            processes.push((pid, parent, used));
        }
    }
    let mut family = vec![root];
    let mut known = 0;
    while known < family.len() {
        let parent = family[known];
        family.extend(processes.iter().filter(|(_, of, _)| *of == parent).map(|(pid, _, _)| pid));
        known += 1;
    }
    Ok(processes.iter().filter(|(pid, _, _)| family.contains(pid)).map(|(_, _, used)| used).sum())
}

/// Parent and time used, with that of children that have ended (proc(5), fields 4 and 14 to 17).
fn stat(line: &str) -> Option<(u32, u64)> {
    // The name may hold blanks; what follows its last parenthesis does not.
    let fields: Vec<&str> = line.rsplit_once(") ")?.1.split_whitespace().collect();
    let used = fields.get(11..15)?.iter().flat_map(|field| field.parse::<u64>()).sum();
    Some((fields.get(1)?.parse().ok()?, used))
}

/// The most memory a process has had, in MB.
pub fn peak_memory(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no value of VmHWM")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}
