//! Who runs the tool, and the one way in which it changes anything: with a name, with `--yes` where
//! it cannot be undone, and with an entry in operator_actions in the same transaction.

use clap::Args;
use uuid::Uuid;

use crate::failure::Failure;
use crate::settings::Settings;

#[derive(Debug, Clone, Args)]
pub struct Consent {
    /// Who does this; named in operator_actions. $USER when it is not given.
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Say what would be changed, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

impl Consent {
    /// The operator's name.
    pub fn operator(&self, settings: &Settings) -> Result<String, Failure> {
        let named = self.operator.clone().or_else(|| settings.operator.name.clone());
        named.filter(|name| !name.trim().is_empty()).ok_or_else(|| {
            Failure::Usage("changes are recorded under a name: add --operator NAME".into())
        })
    }
}

/// For what cannot be undone by another verb.
#[derive(Debug, Clone, Copy, Args)]
pub struct Yes {
    /// Really do it.
    #[arg(long)]
    yes: bool,
}

impl Yes {
    pub fn or_refuse(self, what: &str) -> Result<(), Failure> {
        match self.yes {
            true => Ok(()),
            false => Err(Failure::Usage(format!(
                "{what}; nothing was changed: see it with --dry-run, do it with --yes"
            ))),
        }
    }
}

/// The id of an action, known before its transaction so that rows can name it.
#[expect(clippy::disallowed_methods, reason = "the id of an action is minted here")]
pub fn action_id() -> Uuid {
    Uuid::now_v7()
}
