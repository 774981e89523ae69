use crate::Statement;
pub(crate) const STATEMENTS: &[&Statement] = &[];
