//! How settings are declared: `group!` makes a struct whose doc comments are the help text,
//! `choice!` an enum whose names are what the setting accepts. A service composes groups by hand:
//! it calls `reader.group()` for each *before* it uses `?`, so that all problems are found.

use std::ops::RangeInclusive;

use crate::Reader;

/// A set of settings that are read together.
pub trait Group: Sized {
    /// `None` when a problem was noted. Reads every setting on every path: what is read here is
    /// also what `--help` lists and what counts as known.
    fn read(reader: &mut Reader) -> Option<Self>;
}

/// One setting as declared.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub key: &'static str,
    /// A well-known variable name instead of `ONCEBOX_…`.
    pub env: Option<&'static str>,
    pub presence: Presence,
    pub allowed: &'static str,
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Required,
    Optional,
    Default(&'static str),
}

impl Spec {
    pub fn env_name(&self) -> String {
        match self.env {
            Some(name) => name.to_owned(),
            None => format!("ONCEBOX_{}", self.key.replace('.', "_").to_uppercase()),
        }
    }
}

/// The check behind `range`.
pub fn within<T: PartialOrd>(range: RangeInclusive<T>, value: &T) -> Result<(), String> {
    if range.contains(value) { Ok(()) } else { Err("is out of range".into()) }
}

/// Declares a struct of settings and how each is read. A field is
/// `name: Type = "key" [env "NAME"], default "text" | required | optional, "what is allowed"
/// [, range LOW..=HIGH] [, check FUNCTION];` where an optional field's type is an `Option` and
/// FUNCTION is `fn(&Type) -> Result<(), String>`; its error completes the sentence "the value …".
/// A further group is a field `group name: Struct;` after those.
/// `check FUNCTION` after the struct is for settings that contradict each other:
/// `fn(&Struct) -> Vec<(&'static str, String)>`, with the key that each problem is noted for.
#[macro_export]
macro_rules! group {
    (@presence required) => { $crate::Presence::Required };
    (@presence optional) => { $crate::Presence::Optional };
    (@presence default $text:literal) => { $crate::Presence::Default($text) };
    (@env) => { None };
    (@env $env:literal) => { Some($env) };
    (@read optional, $reader:ident, $spec:expr, $check:expr) => { $reader.optional($spec, $check) };
    (@read required, $reader:ident, $spec:expr, $check:expr) => { $reader.value($spec, $check) };
    (@read default, $reader:ident, $spec:expr, $check:expr) => { $reader.value($spec, $check) };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $key:literal $(env $env:literal)?,
                $presence:ident $($default:literal)?, $allowed:literal
                $(, range $range:expr)? $(, check $check:expr)?;
            )+
            $( group $inner:ident: $inner_type:ty; )*
        }
        $(check $agree:expr)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $( $(#[doc = $help])+ pub $field: $type, )+
            $( pub $inner: $inner_type, )*
        }

        impl $crate::Group for $name {
            fn read(reader: &mut $crate::Reader) -> Option<Self> {
                $(
                    let spec = $crate::Spec {
                        key: $key,
                        env: $crate::group!(@env $($env)?),
                        presence: $crate::group!(@presence $presence $($default)?),
                        allowed: $allowed,
                        help: concat!($($help),+),
                    };
                    let $field: Option<$type> = $crate::group!(@read $presence, reader, spec, |_value| {
                        $( $crate::within($range, _value)?; )?
                        $( $check(_value)?; )?
                        Ok(())
                    });
                )+
                $( let $inner: Option<$inner_type> = reader.group(); )*
                let group = Self { $( $field: $field?, )+ $( $inner: $inner?, )* };
                $(
                    for (key, why) in $agree(&group) {
                        reader.problem(key, why);
                    }
                )?
                Some(group)
            }
        }
    };
}

/// Declares an enum that a setting can have as its type, with the name of each variant.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$variant_meta])* $variant ),+
        }

        impl $name {
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text ),+
                }
            }
        }

        impl $crate::FromSetting for $name {
            fn from_setting(text: &str) -> Result<Self, String> {
                match text {
                    $( $text => Ok(Self::$variant), )+
                    _ => Err("is not one of them".to_owned()),
                }
            }
        }
    };
}
