//! The dotted parts of an opcode, taken one by one; what nobody takes is an error.

use crate::num::Round;
use crate::ptx::ast::Type;

/// An opcode's modifiers that were not taken yet.
pub(crate) struct Modifiers<'a> {
    base: &'a str,
    left: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(crate) fn new(opcode: &'a str) -> Modifiers<'a> {
        let mut parts = opcode.split('.');
        Modifiers { base: parts.next().unwrap_or_default(), left: parts.collect() }
    }

    /// The opcode's first part.
    pub(crate) fn base(&self) -> &'a str {
        self.base
    }

    /// Whether `name` is among the modifiers left, without taking it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains(&name)
    }

    /// Takes `name` if it is there.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        match self.left.iter().position(|part| *part == name) {
            Some(at) => {
                self.left.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes all of `names` that are there.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        self.left.retain(|part| !names.contains(part));
    }

    /// Takes what `pick` recognises first.
    pub(crate) fn find<T>(&mut self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        let at = self.left.iter().position(|part| pick(part).is_some())?;
        pick(self.left.remove(at))
    }

    /// Takes the first type.
    pub(crate) fn ty(&mut self) -> Result<Type, String> {
        self.find(Type::parse).ok_or_else(|| "no type".into())
    }

    /// The first type, left in place.
    pub(crate) fn peek_type(&self) -> Option<Type> {
        self.left.iter().find_map(|part| Type::parse(part))
    }

    /// Whether a type is all that is left.
    pub(crate) fn only_type(&self) -> bool {
        self.left.len() == 1 && self.peek_type().is_some()
    }

    /// Takes a floating-point rounding.
    pub(crate) fn round(&mut self) -> Option<Round> {
        self.find(|part| match part {
            "rn" => Some(Round::Nearest),
            "rz" => Some(Round::Zero),
            "rm" => Some(Round::Down),
            "rp" => Some(Round::Up),
            _ => None,
        })
    }

    /// Fails when something is left.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.left.first() {
            Some(part) => Err(format!("modifier .{part} is not supported")),
            None => Ok(()),
        }
    }
}
