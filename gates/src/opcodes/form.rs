//! Opcode forms: a mnemonic with its modifiers, and which forms a PTX text uses.

use std::collections::BTreeMap;

/// An operand's type, as a modifier names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    E4m3x2,
    E5m2x2,
    /// By no modifier: a shift's amount, 32 bits.
    Amount,
    /// By no modifier: a bit field's position or length, 32 bits of which at most 255 is allowed.
    Field,
}

impl Type {
    /// The type a modifier names.
    pub(super) fn parse(text: &str) -> Option<Type> {
        Some(match text {
            "pred" => Type::Pred,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "tf32" => Type::Tf32,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            _ => return None,
        })
    }

    /// Bits of the value itself.
    pub(super) fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
            _ => 32,
        }
    }

    /// Bits of the register that holds it (8-bit values live in 16-bit ones, a predicate is stored as 32).
    pub(super) fn register_bits(self) -> u32 {
        match self {
            Type::Pred => 32,
            other => other.bits().max(16),
        }
    }

    /// The integer that a register's bits stand for.
    pub(super) fn value(self, bits: u64) -> i128 {
        let width = self.bits();
        let low = bits & u64::MAX >> (64 - width);
        if self.signed() && low >> (width - 1) == 1 {
            i128::from(low) - (1 << width)
        } else {
            i128::from(low)
        }
    }

    /// A signed integer.
    pub(super) fn signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// An unsigned integer.
    pub(super) fn unsigned(self) -> bool {
        matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64)
    }

    /// Untyped bits.
    pub(super) fn untyped(self) -> bool {
        matches!(self, Type::B8 | Type::B16 | Type::B32 | Type::B64)
    }

    /// A signed or unsigned integer.
    pub(super) fn integer(self) -> bool {
        self.signed() || self.unsigned()
    }
}

/// A form's modifiers, taken one by one; what is left over was not understood.
#[derive(Debug, Clone)]
pub(super) struct Modifiers<'a> {
    /// The mnemonic.
    pub(super) name: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    /// Splits `add.rn.f32` and the like.
    pub(super) fn new(form: &'a str) -> Modifiers<'a> {
        let mut rest: Vec<&str> = form.split('.').collect();
        let name = rest.remove(0);
        Modifiers { name, rest }
    }

    /// Takes `modifier` if it is there.
    pub(super) fn take(&mut self, modifier: &str) -> bool {
        let found = self.rest.iter().position(|m| *m == modifier);
        found.is_some_and(|at| {
            self.rest.remove(at);
            true
        })
    }

    /// Takes whichever of `modifiers` comes first.
    pub(super) fn take_one(&mut self, modifiers: &[&str]) -> Option<&'a str> {
        let at = self.rest.iter().position(|m| modifiers.contains(m))?;
        Some(self.rest.remove(at))
    }

    /// Takes the last modifier, which must be a type.
    pub(super) fn take_type(&mut self) -> Option<Type> {
        let ty = Type::parse(self.rest.last()?)?;
        self.rest.pop();
        Some(ty)
    }

    /// Takes the first modifier, whatever it is.
    pub(super) fn take_first(&mut self) -> Option<&'a str> {
        (!self.rest.is_empty()).then(|| self.rest.remove(0))
    }

    /// Takes a rounding modifier.
    pub(super) fn take_rounding(&mut self) -> Option<(super::soft::Rounding, bool)> {
        let at = self.rest.iter().position(|m| super::soft::Rounding::parse(m).is_some())?;
        super::soft::Rounding::parse(self.rest.remove(at))
    }

    /// Whether nothing is left.
    pub(super) fn done(&self) -> bool {
        self.rest.is_empty()
    }
}

/// The forms that a PTX text uses, with how often. Besides opcodes as written (`add.rn.f32`) it counts what an
/// opcode alone does not tell: `mov.b32 pack` and `mov.b32 unpack` (a vector as source or destination),
/// `mov.u32 symbol` and `ld.shared.f32 [symbol]` (a variable's name), special registers (`%tid.x`), guards (`@p`, `@!p`), `shfl… |p` and `setp… |q` (two
/// results).
///
/// This reads the text itself, on purpose: an opcode that the simulator's parser overlooks is still seen.
pub(super) fn scan(ptx: &str) -> BTreeMap<String, usize> {
    let mut forms = BTreeMap::new();
    let mut count = |form: String| *forms.entry(form).or_insert(0) += 1;
    for statement in statements(ptx) {
        let mut rest = statement.as_str();
        if let Some(guarded) = rest.strip_prefix('@') {
            count(if guarded.starts_with('!') { "@!p" } else { "@p" }.into());
            rest = guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
        }
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operands = operands.trim();
        let base = opcode.split('.').next().unwrap_or_default();
        if base.is_empty() || !base.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            continue;
        }
        for word in operands.split(|c: char| !(c.is_ascii_alphanumeric() || "%._$".contains(c))) {
            if is_special_register(word) {
                count(word.into());
            }
        }
        count(match base {
            "mov" => format!("{opcode}{}", mov_shape(operands)),
            "shfl" if operands.contains('|') => format!("{opcode} |p"),
            "setp" if operands.contains('|') => format!("{opcode} |q"),
            "ld" | "st" | "atom" | "red" if names_variable(opcode, operands) => {
                format!("{opcode}{}", super::memory::SYMBOL)
            }
            _ => opcode.into(),
        });
    }
    forms
}

/// Whether an address is a variable's name. Parameters always are.
fn names_variable(opcode: &str, operands: &str) -> bool {
    let first = operands.split_once('[').and_then(|(_, address)| address.trim_start().bytes().next());
    !opcode.contains(".param") && first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b'$')
}

fn mov_shape(operands: &str) -> &'static str {
    if operands.starts_with('{') {
        return " unpack";
    }
    let source = operands.split_once(',').map_or("", |(_, source)| source.trim());
    match source.bytes().next() {
        Some(b'{') => " pack",
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$') => " symbol",
        _ => "",
    }
}

/// Registers that nvcc declares are a `%`, letters and a number; special ones are the rest.
fn is_special_register(word: &str) -> bool {
    let Some(name) = word.strip_prefix('%') else { return false };
    let number = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let declared = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    // `%clock64` and the like do end in digits.
    !declared && !matches!(name, "SP" | "SPL") || matches!(name, "clock64")
}

/// The statements of all function bodies: comments removed, directives, labels and declarations skipped.
fn statements(ptx: &str) -> Vec<String> {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(at) = rest.find("/*") {
        text.push_str(&rest[..at]);
        rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
    }
    text.push_str(rest);
    let mut out = Vec::new();
    let mut current = String::new();
    // Braces that open a body or a scope, against braces of a vector within a statement.
    let mut depth = 0;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        for c in line.chars() {
            match c {
                '{' if current.trim().is_empty()
                    || current.contains(".entry")
                    || current.contains(".func") =>
                {
                    depth += 1;
                    current.clear();
                }
                '}' if current.trim().is_empty() && depth > 0 => depth -= 1,
                ':' if depth > 0 && is_label(&current) => current.clear(),
                ';' => {
                    let statement = current.trim();
                    if depth > 0 && !statement.starts_with('.') {
                        out.push(statement.split_whitespace().collect::<Vec<_>>().join(" "));
                    }
                    current.clear();
                }
                c => current.push(c),
            }
        }
        current.push(' ');
    }
    out
}

fn is_label(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$%".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_what_nvcc_writes() {
        let ptx = "
.version 9.0
.target sm_80
.address_size 64
// add.s64 in a comment
.visible .entry f(
	.param .u64 .ptr .align 1 f_param_0
)
.maxntid 128
{
	.reg .pred 	%p<4>;
	.shared .align 4 .b8 staged[64];
	mov.u32 	%r1, %tid.x;
	@!%p1 bra 	$L__BB0_2;
$L__BB0_1:
	mov.u32 	%r4, staged;
	{ .reg .b16 l, h; mov.b32 {l, h}, %r2; cvt.f32.f16 %f1, l; }
	mov.b64 	%rd2, {%r1, %r2};
	ld.shared.u32 	%r9, [staged+16];
	ld.param.u64 	%rd1, [f_param_0];
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1+16]; /* mul.f32 */
	shfl.sync.bfly.b32 	%r5|%p1, %r4, 16, 31, -1;
$L__BB0_2: ret;
}
";
        let found: Vec<String> = scan(ptx).into_keys().collect();
        assert_eq!(
            found,
            [
                "%tid.x",
                "@!p",
                "bra",
                "cvt.f32.f16",
                "ld.global.v4.f32",
                "ld.param.u64",
                "ld.shared.u32 [symbol]",
                "mov.b32 unpack",
                "mov.b64 pack",
                "mov.u32",
                "mov.u32 symbol",
                "ret",
                "shfl.sync.bfly.b32 |p",
            ]
        );
    }

    #[test]
    fn modifiers_are_taken_one_by_one() {
        let mut m = Modifiers::new("cvt.rn.f16.f32");
        assert_eq!(m.name, "cvt");
        assert!(m.take_rounding().is_some());
        assert_eq!((m.take_type(), m.take_type()), (Some(Type::F32), Some(Type::F16)));
        assert!(m.done());
    }
}
