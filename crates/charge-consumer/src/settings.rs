//! The settings of the consumer, all groups of them.

use settings::{Group, Reader};
use shutdown::ShutdownSettings;
use telemetry::{AdminSettings, LogSettings};

#[derive(Debug, Clone)]
pub struct Settings {
    pub inbox: inbox::Settings,
    pub admin: AdminSettings,
    pub log: LogSettings,
    pub shutdown: ShutdownSettings,
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.default("admin.listen", "127.0.0.1:9466");
        let (inbox, admin) = (reader.group(), reader.group());
        let (log, shutdown) = (reader.group(), reader.group());
        Some(Self { inbox: inbox?, admin: admin?, log: log?, shutdown: shutdown? })
    }
}
