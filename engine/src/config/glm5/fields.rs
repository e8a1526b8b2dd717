//! Access to the fields of a `config.json`, each error naming the field.

use std::path::Path;

use serde_json::{Map, Value};

use crate::format::FormatError;

/// Largest value accepted for a width, a number of tokens or a product of heads and their width.
pub(super) const MAX_EXTENT: u32 = 1 << 26;

/// One object of the file.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    path: &'a Path,
    /// What its fields are called by, with a dot at the end where it is no top-level object.
    prefix: &'a str,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub fn new(path: &'a Path, prefix: &'a str, object: &'a Map<String, Value>) -> Self {
        Fields { path, prefix, object }
    }

    /// Whether this is the file's outermost object.
    pub fn is_root(&self) -> bool {
        self.prefix.is_empty()
    }

    /// The error that `field` is at fault.
    pub fn error(&self, field: &str, reason: impl Into<String>) -> FormatError {
        FormatError::Config {
            path: self.path.into(),
            field: format!("{}{field}", self.prefix),
            reason: reason.into(),
        }
    }

    /// The field's value if it is there and not null.
    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    pub fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// The object of this name; `None` if it is absent or null.
    pub fn object(&self, field: &str, prefix: &'a str) -> Result<Option<Fields<'a>>, FormatError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields { path: self.path, prefix, object })),
            Some(other) => Err(self.error(field, format!("is {}, but must be an object", brief(other)))),
        }
    }

    fn require(&self, field: &str) -> Result<&'a Value, FormatError> {
        self.get(field).ok_or_else(|| {
            let how = if self.has(field) { "is null" } else { "is missing" };
            self.error(field, format!("{how}, and the model cannot be built without it"))
        })
    }

    /// A whole number from `least` to `most`.
    pub fn number(&self, field: &str, least: u32, most: u32) -> Result<u32, FormatError> {
        self.require(field).and_then(|value| self.in_range(field, value, least, most))
    }

    /// The same, which may be absent.
    pub fn optional_number(&self, field: &str, least: u32, most: u32) -> Result<Option<u32>, FormatError> {
        self.get(field).map(|value| self.in_range(field, value, least, most)).transpose()
    }

    fn in_range(&self, field: &str, value: &Value, least: u32, most: u32) -> Result<u32, FormatError> {
        value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                let reason =
                    format!("is {}, but a whole number from {least} to {most} is wanted", brief(value));
                self.error(field, reason)
            })
    }

    /// A width: a number from 1 to [`MAX_EXTENT`].
    pub fn extent(&self, field: &str) -> Result<u32, FormatError> {
        self.number(field, 1, MAX_EXTENT)
    }

    /// A number that is a finite f32.
    pub fn float(&self, field: &str) -> Result<f32, FormatError> {
        self.require(field).and_then(|value| self.finite(field, value))
    }

    /// The same, which may be null but not absent.
    pub fn nullable_float(&self, field: &str) -> Result<Option<f32>, FormatError> {
        match self.object.get(field) {
            Some(Value::Null) => Ok(None),
            _ => self.float(field).map(Some),
        }
    }

    fn finite(&self, field: &str, value: &Value) -> Result<f32, FormatError> {
        value
            .as_f64()
            .map(|number| number as f32)
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.error(field, format!("is {}, but a finite number is wanted", brief(value))))
    }

    /// A number above 0.
    pub fn positive(&self, field: &str) -> Result<f32, FormatError> {
        let value = self.float(field)?;
        if value > 0.0 {
            Ok(value)
        } else {
            Err(self.error(field, format!("is {value}, but must be positive")))
        }
    }

    /// A truth value; `None` if absent.
    pub fn flag(&self, field: &str) -> Result<Option<bool>, FormatError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.error(field, format!("is {}, but must be true or false", brief(other)))),
        }
    }

    /// A string; `None` if absent.
    pub fn text(&self, field: &str) -> Result<Option<&'a str>, FormatError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(field, format!("is {}, but must be a string", brief(other)))),
        }
    }

    /// An array with an entry for each of `layers` layers; `None` if absent.
    pub fn per_layer(&self, field: &str, layers: u32) -> Result<Option<&'a [Value]>, FormatError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(entries)) if entries.len() == layers as usize => Ok(Some(entries)),
            Some(Value::Array(entries)) => {
                let reason = format!("has {} entries, but the model has {layers} layers", entries.len());
                Err(self.error(field, reason))
            }
            Some(other) => Err(self.error(field, format!("is {}, but must be an array", brief(other)))),
        }
    }

    /// An array of whole numbers below `limit`; `None` if absent.
    pub fn indices(&self, field: &str, limit: u32) -> Result<Option<Vec<u32>>, FormatError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(entries)) => {
                let index = |(i, value): (usize, &Value)| {
                    let place = format!("{field}[{i}]");
                    self.in_range(&place, value, 0, limit.saturating_sub(1))
                };
                entries.iter().enumerate().map(index).collect::<Result<_, _>>().map(Some)
            }
            Some(other) => Err(self.error(field, format!("is {}, but must be an array", brief(other)))),
        }
    }

    /// Refuses a field that is there and has another value than the one that is supported.
    pub fn only(&self, field: &str, supported: &Value, why: &str) -> Result<(), FormatError> {
        match self.get(field) {
            Some(value) if value != supported => {
                let reason = format!("is {}; bitwalk runs {supported} only: {why}", brief(value));
                Err(self.error(field, reason))
            }
            _ => Ok(()),
        }
    }
}

/// A value as messages show it: at most some words of it.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::Array(entries) => format!("an array of {}", entries.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?}…", text.chars().take(60).collect::<String>())
        }
        other => other.to_string(),
    }
}
