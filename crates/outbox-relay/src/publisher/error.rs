//! Which errors are a record's own fault, and which are everybody's.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// What kind of error it was: the label of the metric, and what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Not acknowledged in time. It may have been written all the same.
    Timeout,
    /// The cluster cannot be reached, or cannot take records now.
    Broker,
    /// The topic is not there.
    Topic,
    /// Refused: who we are, or what we may do.
    Denied,
    /// The record, or the batch it was in, can never be taken.
    Record,
    /// The producer itself is broken and must be replaced.
    Fatal,
    /// Anything else, treated like `Broker`: parking a good row is worse than waiting.
    Other,
}

impl ErrorClass {
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::Broker,
        Self::Topic,
        Self::Denied,
        Self::Record,
        Self::Fatal,
        Self::Other,
    ];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Broker => "broker",
            Self::Topic => "topic",
            Self::Denied => "denied",
            Self::Record => "record",
            Self::Fatal => "fatal",
            Self::Other => "other",
        }
    }

    fn of(code: RDKafkaErrorCode) -> Self {
        use RDKafkaErrorCode as Code;
        match code {
            Code::MessageTimedOut | Code::RequestTimedOut | Code::OperationTimedOut => {
                Self::Timeout
            }
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::BrokerDestroy
            | Code::Resolve
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::BrokerNotAvailable
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::NetworkException
            | Code::PurgeQueue
            | Code::PurgeInflight => Self::Broker,
            Code::UnknownTopic
            | Code::UnknownPartition
            | Code::UnknownTopicOrPartition
            | Code::InvalidTopic => Self::Topic,
            Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SSL => Self::Denied,
            // InvalidDifferentRecord: a neighbour in the batch was invalid; the record will show
            // its innocence when it is sent alone.
            Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidTimestamp
            | Code::InvalidRecord
            | Code::InvalidDifferentRecord => Self::Record,
            Code::Fatal | Code::Fenced | Code::GaplessGuarantee | Code::Inconsistent => Self::Fatal,
            _ => Self::Other,
        }
    }
}

/// An error of Kafka with its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: ErrorClass,
    pub reason: String,
}

impl Failure {
    pub fn from_code(code: RDKafkaErrorCode) -> Self {
        Self { class: ErrorClass::of(code), reason: code.to_string() }
    }

    /// What a producer gives up for. A user that may write nowhere does not even become one.
    pub fn fatal(code: RDKafkaErrorCode, reason: &str) -> Self {
        let class = match ErrorClass::of(code) {
            ErrorClass::Denied => ErrorClass::Denied,
            _ => ErrorClass::Fatal,
        };
        Self { class, reason: format!("{code}: {reason}") }
    }

    pub fn from_kafka(error: &KafkaError) -> Self {
        match error.rdkafka_error_code() {
            Some(code) => Self::from_code(code),
            None => Self { class: ErrorClass::Other, reason: error.to_string() },
        }
    }
}
