//! Moves, packing, selection, comparison, address conversion.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::memory::window;
use crate::ops::moves as m;
use crate::ops::{Handler, Level, convert, half, int, select};
use crate::ptx::ast::{Operand, Type};

/// A comparison as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

fn relation(name: &str) -> Option<Relation> {
    Some(match name {
        "eq" => Relation::Eq,
        "ne" => Relation::Ne,
        "lt" | "lo" => Relation::Lt,
        "le" | "ls" => Relation::Le,
        "gt" | "hi" => Relation::Gt,
        "ge" | "hs" => Relation::Ge,
        "equ" => Relation::Equ,
        "neu" => Relation::Neu,
        "ltu" => Relation::Ltu,
        "leu" => Relation::Leu,
        "gtu" => Relation::Gtu,
        "geu" => Relation::Geu,
        "num" => Relation::Num,
        "nan" => Relation::Nan,
        _ => return None,
    })
}

/// A comparison's op, whether its operands change places, and whether its result is inverted.
type Comparison = (Handler, bool, bool);

fn compare_integers<T: crate::ops::lanes::Lane + PartialOrd>(
    level: Level,
    relation: Relation,
) -> Option<Comparison> {
    let (eq, lt, le) =
        (select::<m::SetP<T, m::Eq>>, select::<m::SetP<T, m::Lt>>, select::<m::SetP<T, m::Le>>);
    Some(match relation {
        Relation::Eq => (eq(level), false, false),
        Relation::Ne => (eq(level), false, true),
        Relation::Lt => (lt(level), false, false),
        Relation::Le => (le(level), false, false),
        Relation::Gt => (lt(level), true, false),
        Relation::Ge => (le(level), true, false),
        _ => return None,
    })
}

fn compare_floats<T: crate::ops::lanes::Lane + PartialOrd>(level: Level, relation: Relation) -> Comparison {
    let (ne, nan) = (select::<m::SetP<T, m::Ne>>, select::<m::SetP<T, m::Nan>>);
    // "Less, or not a number" is the contrary of "greater or equal", and so on.
    let (ordered, inverted) = match relation {
        Relation::Ne => return (ne(level), false, false),
        Relation::Equ => return (ne(level), false, true),
        Relation::Nan => return (nan(level), false, false),
        Relation::Num => return (nan(level), false, true),
        Relation::Neu => (Relation::Eq, true),
        Relation::Ltu => (Relation::Ge, true),
        Relation::Leu => (Relation::Gt, true),
        Relation::Gtu => (Relation::Le, true),
        Relation::Geu => (Relation::Lt, true),
        ordered => (ordered, false),
    };
    match compare_integers::<T>(level, ordered) {
        Some((run, exchanged, _)) => (run, exchanged, inverted),
        None => (nan(level), false, false),
    }
}

impl Builder<'_> {
    /// Decodes a move, selection, comparison or address conversion; `false` when it is none.
    pub(super) fn moving(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        match (base, operands) {
            ("mov", [d, x]) => self.mov(modifiers, d, x)?,
            ("selp", [d, x, y, p]) => {
                let ty = modifiers.ty()?;
                let (x, y, p) = (self.src(x, ty)?, self.src(y, ty)?, self.predicate(p)?);
                let d = self.dst(d, ty)?;
                match Class::of(ty)? {
                    Class::W64 => self.op::<m::Sel64>(d, &[x, y, p]),
                    _ => self.op::<m::Sel32>(d, &[x, y, p]),
                };
            }
            ("setp", [d, x, y, rest @ ..]) => {
                let (first, second) = match d {
                    Operand::Pair(first, second) => (&**first, Some(&**second)),
                    d => (d, None),
                };
                let out = self.dst_class(first, Class::Pred)?;
                let paired = second.map(|second| self.dst_class(second, Class::Pred)).transpose()?;
                if matches!(modifiers.peek_type(), Some(Type::F16x2 | Type::Bf16x2)) {
                    self.compare_halves(modifiers, out, paired, x, y, rest)?;
                } else {
                    let result = self.compare(modifiers, x, y)?;
                    self.combine(modifiers, out, paired, result, rest)?;
                }
            }
            ("slct", [d, x, y, z]) => {
                let (ty, by) = (modifiers.ty()?, modifiers.ty()?);
                let (x, y, z) = (self.src(x, ty)?, self.src(y, ty)?, self.src(z, by)?);
                let d = self.dst(d, ty)?;
                match (Class::of(ty)?, by) {
                    (Class::W32, Type::S32) => self.op::<m::Slct32>(d, &[x, y, z]),
                    (Class::W64, Type::S32) => self.op::<m::Slct64>(d, &[x, y, z]),
                    (Class::W32, Type::F32) => self.op::<m::SlctF32>(d, &[x, y, z]),
                    (Class::W64, Type::F32) => self.op::<m::Slct64F32>(d, &[x, y, z]),
                    _ => return Err("selection by this type is not supported".into()),
                };
            }
            ("set", [d, x, y, rest @ ..]) => self.set(modifiers, d, x, y, rest)?,
            ("cvta", [d, x]) => {
                let to = modifiers.take("to");
                let ty = modifiers.ty()?;
                let start = modifiers.find(|space| match space {
                    "global" | "const" => Some(0),
                    "shared" | "shared::cta" => Some(window::SHARED),
                    "local" => Some(window::LOCAL),
                    "param" | "param::entry" => Some(window::PARAM),
                    _ => None,
                });
                let Some(start) = start else { return Err("no state space".into()) };
                if ty.bits() != 64 {
                    return Err("only 64-bit addresses are supported".into());
                }
                let x = self.src(x, ty)?;
                let d = self.dst(d, ty)?;
                match (start, to) {
                    (0, _) => self.op::<m::Mov64>(d, &[x]),
                    (_, true) => self.op::<int::Sub64>(d, &[x, Place::Const64(start)]),
                    (_, false) => self.op::<int::Add64>(d, &[x, Place::Const64(start)]),
                };
            }
            ("isspacep", [d, x]) => {
                let space = modifiers.find(|space| match space {
                    "global" => Some(0),
                    "shared" | "shared::cta" => Some(1),
                    "local" => Some(2),
                    "const" => Some(3),
                    _ => None,
                });
                let Some(space) = space else { return Err("no state space".into()) };
                let x = self.src(x, Type::U64)?;
                let d = self.dst_class(d, Class::Pred)?;
                self.op::<m::IsSpace>(d, &[x]).imm = space;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mov(&mut self, modifiers: &mut Modifiers<'_>, d: &Operand, x: &Operand) -> Result<(), String> {
        let ty = modifiers.ty()?;
        match (d, x) {
            (Operand::Vector(parts), x) => self.unpack(ty, parts, x),
            (d, Operand::Vector(parts)) => self.pack(ty, d, parts),
            (d, x) => {
                let x = self.src(x, ty)?;
                let d = self.dst(d, ty)?;
                match Class::of(ty)? {
                    Class::W32 => self.op::<m::Mov32>(d, &[x]),
                    Class::W64 => self.op::<m::Mov64>(d, &[x]),
                    Class::Pred => self.op::<m::MovP>(d, &[x]),
                };
                Ok(())
            }
        }
    }

    /// `mov.b32 r, {lo, hi}` and its like.
    fn pack(&mut self, ty: Type, d: &Operand, parts: &[Operand]) -> Result<(), String> {
        let (out, bits) = (self.dst(d, ty)?, ty.bits());
        let part = match bits as usize / parts.len().max(1) {
            8 => Type::B8,
            16 => Type::B16,
            32 => Type::B32,
            _ => return Err("unsupported packing".into()),
        };
        let parts = parts.iter().map(|p| self.src(p, part)).collect::<Result<Vec<_>, _>>()?;
        match (bits, &parts[..]) {
            (16, &[a, b]) => {
                self.op::<m::Pack4x8Low>(out, &[a, b]);
            }
            (32, &[a, b]) => {
                self.op::<m::Pack2x16>(out, &[a, b]);
            }
            (32, &[a, b, c, e]) => {
                let (low, high) = (self.temp(Class::W32), self.temp(Class::W32));
                self.op::<m::Pack4x8Low>(low, &[a, b]);
                self.op::<m::Pack4x8Low>(high, &[c, e]);
                self.op::<m::Pack2x16>(out, &[low, high]);
            }
            (64, &[a, b]) => {
                self.op::<m::Pack2x32>(out, &[a, b]);
            }
            (64, &[a, b, c, e]) => {
                let (low, high) = (self.temp(Class::W32), self.temp(Class::W32));
                self.op::<m::Pack2x16>(low, &[a, b]);
                self.op::<m::Pack2x16>(high, &[c, e]);
                self.op::<m::Pack2x32>(out, &[low, high]);
            }
            _ => return Err("unsupported packing".into()),
        }
        Ok(())
    }

    /// `mov.b32 {lo, hi}, r` and its like.
    fn unpack(&mut self, ty: Type, parts: &[Operand], x: &Operand) -> Result<(), String> {
        let bits = ty.bits();
        let mut x = self.src(x, ty)?;
        // A destination may be the source too: read it from a copy.
        let written = parts.iter().any(|p| matches!(p, Operand::Reg(r) if Place::Register(r.0) == x));
        if written {
            let copy = self.temp(Class::of(ty)?);
            match Class::of(ty)? {
                Class::W64 => self.op::<m::Mov64>(copy, &[x]),
                _ => self.op::<m::Mov32>(copy, &[x]),
            };
            x = copy;
        }
        let part = match bits as usize / parts.len().max(1) {
            8 => Type::B8,
            16 => Type::B16,
            32 => Type::B32,
            _ => return Err("unsupported unpacking".into()),
        };
        let words: Vec<Place> = if bits == 64 && part != Type::B32 {
            let (low, high) = (self.temp(Class::W32), self.temp(Class::W32));
            self.op::<m::Low32>(low, &[x]);
            self.op::<m::High32>(high, &[x]);
            vec![low, high]
        } else {
            vec![x]
        };
        for (i, operand) in parts.iter().enumerate() {
            if *operand == Operand::Sink {
                continue;
            }
            let d = self.dst(operand, part)?;
            match (bits, part) {
                (64, Type::B32) if i == 0 => self.op::<m::Low32>(d, &[x]),
                (64, Type::B32) => self.op::<m::High32>(d, &[x]),
                (_, Type::B16) if i % 2 == 0 => self.op::<m::Low16>(d, &[words[i / 2]]),
                (_, Type::B16) => self.op::<m::High16>(d, &[words[i / 2]]),
                _ => {
                    let draft = self.op::<m::Byte>(d, &[words[i / 4]]);
                    draft.imm = (i % 4) as i32;
                    draft
                }
            };
        }
        Ok(())
    }

    /// A comparison's result in a temporary predicate.
    fn compare(&mut self, modifiers: &mut Modifiers<'_>, x: &Operand, y: &Operand) -> Result<Place, String> {
        let Some(relation) = modifiers.find(relation) else { return Err("no comparison".into()) };
        let ty = modifiers.ty()?;
        let level = self.level;
        let (mut x, mut y) = (self.src(x, ty)?, self.src(y, ty)?);
        let run = match ty {
            Type::U32 | Type::B32 | Type::U16 | Type::B16 | Type::B8 | Type::U8 => {
                compare_integers::<u32>(level, relation)
            }
            Type::S32 => compare_integers::<i32>(level, relation),
            Type::U64 | Type::B64 => compare_integers::<u64>(level, relation),
            Type::S64 => compare_integers::<i64>(level, relation),
            Type::F32 => Some(compare_floats::<f32>(level, relation)),
            Type::F64 => Some(compare_floats::<f64>(level, relation)),
            Type::S16 | Type::S8 => {
                (x, y) = (self.sign_extended(x, ty.bits()), self.sign_extended(y, ty.bits()));
                compare_integers::<i32>(level, relation)
            }
            Type::F16 | Type::Bf16 => {
                (x, y) = (self.widened(x, ty), self.widened(y, ty));
                Some(compare_floats::<f32>(level, relation))
            }
            _ => return Err("comparison of this type is not supported".into()),
        };
        let run = run.ok_or("this comparison is for floating-point numbers")?;
        Ok(self.compared(run, x, y))
    }

    fn compared(&mut self, (run, exchanged, inverted): Comparison, x: Place, y: Place) -> Place {
        let out = self.temp(Class::Pred);
        let (x, y) = if exchanged { (y, x) } else { (x, y) };
        self.push(run, [out, x, y, Place::Raw(0), Place::Raw(0)], 1).imm = inverted.into();
        out
    }

    fn sign_extended(&mut self, x: Place, bits: u32) -> Place {
        let out = self.temp(Class::W32);
        self.op::<convert::SignExtend>(out, &[x]).imm = 32 - bits as i32;
        out
    }

    /// A half-precision value as f32.
    fn widened(&mut self, x: Place, ty: Type) -> Place {
        let out = self.temp(Class::W32);
        match ty {
            Type::Bf16 => self.op::<half::Bf16ToF32>(out, &[x]),
            _ => self.op::<half::F16ToF32>(out, &[x]),
        };
        out
    }

    /// Writes a comparison's `result`, combined with a further predicate where one is given, and, to `paired`, its
    /// complement so combined.
    fn combine(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        out: Place,
        paired: Option<Place>,
        result: Place,
        rest: &[Operand],
    ) -> Result<(), String> {
        let logic = modifiers.find(|part| match part {
            "and" => Some(0),
            "or" => Some(1),
            "xor" => Some(2),
            _ => None,
        });
        let complement = paired.map(|paired| {
            let not = self.temp(Class::Pred);
            self.op::<m::NotP>(not, &[result]);
            (paired, not)
        });
        match (logic, rest) {
            (None, []) => {
                // The comparison itself can write the destination.
                if complement.is_none()
                    && let Some(last) = self.drafts.last_mut()
                    && last.fields[0] == result
                {
                    last.fields[0] = out;
                    return Ok(());
                }
                self.op::<m::MovP>(out, &[result]);
                if let Some((paired, not)) = complement {
                    self.op::<m::MovP>(paired, &[not]);
                }
            }
            (Some(logic), [third]) => {
                let third = self.predicate(third)?;
                // `out` may be `third`: the pair first.
                let pairs = complement.into_iter();
                let kept = self.temp(Class::Pred);
                self.op::<m::MovP>(kept, &[third]);
                for (d, value) in pairs.chain([(out, result)]) {
                    match logic {
                        0 => self.op::<m::AndP>(d, &[value, kept]),
                        1 => self.op::<m::OrP>(d, &[value, kept]),
                        _ => self.op::<m::XorP>(d, &[value, kept]),
                    };
                }
            }
            _ => return Err("a combining operation and its predicate go together".into()),
        }
        Ok(())
    }

    /// The two comparisons of packed halves.
    fn packed_comparisons(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        x: &Operand,
        y: &Operand,
    ) -> Result<[Place; 2], String> {
        let Some(relation) = modifiers.find(relation) else { return Err("no comparison".into()) };
        let ty = modifiers.ty()?;
        let one = if ty == Type::F16x2 { Type::F16 } else { Type::Bf16 };
        let (x, y) = (self.src(x, ty)?, self.src(y, ty)?);
        let run = compare_floats::<f32>(self.level, relation);
        let mut out = [Place::Raw(0); 2];
        for (i, out) in out.iter_mut().enumerate() {
            let mut pick = |value: Place| {
                let part = self.temp(Class::W32);
                if i == 0 {
                    self.op::<m::Low16>(part, &[value]);
                } else {
                    self.op::<m::High16>(part, &[value]);
                }
                self.widened(part, one)
            };
            let (x, y) = (pick(x), pick(y));
            *out = self.compared(run, x, y);
        }
        Ok(out)
    }

    fn compare_halves(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        out: Place,
        paired: Option<Place>,
        x: &Operand,
        y: &Operand,
        rest: &[Operand],
    ) -> Result<(), String> {
        let Some(paired) = paired else { return Err("packed halves need two predicates".into()) };
        if !rest.is_empty() {
            return Err("combining packed comparisons is not supported".into());
        }
        let [low, high] = self.packed_comparisons(modifiers, x, y)?;
        self.op::<m::MovP>(out, &[low]);
        self.op::<m::MovP>(paired, &[high]);
        Ok(())
    }

    /// `set`: a comparison's result as a number.
    fn set(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        d: &Operand,
        x: &Operand,
        y: &Operand,
        rest: &[Operand],
    ) -> Result<(), String> {
        // The relation stands before the types, the destination's type before the source's.
        let Some(relation) = modifiers.find(|part| relation(part).map(|_| part.to_string())) else {
            return Err("no comparison".into());
        };
        let to = modifiers.ty()?;
        let from = modifiers.peek_type().ok_or("no source type")?;
        let _ = modifiers.ty()?;
        let text = format!("setp.{relation}.{}", name(from)?);
        let mut inner = Modifiers::new(&text);
        if matches!(from, Type::F16x2 | Type::Bf16x2) {
            if !rest.is_empty() {
                return Err("combining packed comparisons is not supported".into());
            }
            let one = match to {
                Type::F16x2 => 0x3c00,
                Type::Bf16x2 => 0x3f80,
                Type::U32 | Type::S32 => 0xffff,
                _ => return Err("unsupported destination type".into()),
            };
            let [low, high] = self.packed_comparisons(&mut inner, x, y)?;
            let d = self.dst(d, to)?;
            let parts = [low, high].map(|p| {
                let part = self.temp(Class::W32);
                self.op::<m::Sel32>(part, &[Place::Const32(one), Place::Const32(0), p]);
                part
            });
            self.op::<m::Pack2x16>(d, &parts);
            return Ok(());
        }
        let truth = match to {
            Type::U32 | Type::S32 => u32::MAX,
            Type::F32 => 1.0f32.to_bits(),
            Type::U16 | Type::S16 => 0xffff,
            Type::F16 => 0x3c00,
            Type::Bf16 => 0x3f80,
            _ => return Err("unsupported destination type".into()),
        };
        let result = self.compare(&mut inner, x, y)?;
        let combined = self.temp(Class::Pred);
        self.combine(modifiers, combined, None, result, rest)?;
        let d = self.dst(d, to)?;
        self.op::<m::Sel32>(d, &[Place::Const32(truth), Place::Const32(0), combined]);
        Ok(())
    }
}

/// The name of a type that `set` compares.
fn name(ty: Type) -> Result<&'static str, String> {
    Ok(match ty {
        Type::B16 => "b16",
        Type::B32 => "b32",
        Type::B64 => "b64",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::S16 => "s16",
        Type::S32 => "s32",
        Type::S64 => "s64",
        Type::F16 => "f16",
        Type::F16x2 => "f16x2",
        Type::Bf16 => "bf16",
        Type::Bf16x2 => "bf16x2",
        Type::F32 => "f32",
        Type::F64 => "f64",
        _ => return Err("comparison of this type is not supported".into()),
    })
}
