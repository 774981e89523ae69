//! What the tool has to know: where the database and Kafka are, and who runs it.

use settings::{Group, Reader};
use store::DatabaseSettings;
use telemetry::LogSettings;

use crate::kafka::KafkaSettings;

#[derive(Debug, Clone)]
pub struct Settings {
    pub database: DatabaseSettings,
    pub kafka: KafkaSettings,
    pub operator: OperatorSettings,
    pub log: LogSettings,
}

settings::group! {
    /// The person at the keyboard.
    pub struct OperatorSettings {
        /// Who is named in operator_actions when --operator is not given.
        name: Option<String> = "operator.name" env "USER", optional, "a name";
    }
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        // An operator's shell is often that of a service.
        reader.among_others();
        // One verb, one connection at a time; reading a page of a big table may take a while.
        reader.default("database.pool_max", "2");
        let (database, kafka) = (reader.group(), reader.group());
        let (operator, log) = (reader.group(), reader.group());
        Some(Self { database: database?, kafka: kafka?, operator: operator?, log: log? })
    }
}
