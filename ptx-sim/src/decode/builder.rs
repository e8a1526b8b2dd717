//! Collects ops over places.

use std::collections::HashMap;

use crate::module::{Param, lay_out};
use crate::ops::{Handle, Handler, Level, control, select};
use crate::ptx::ast::{Function, LabelId, ModuleAst, Operand, RegId, Space, Type};
use crate::ptx::resolve::{Body, Item};

use super::frame::Special;

/// Which registers hold a value: 32 lanes of 32 bits, of 64 bits, or a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    W32,
    W64,
    Pred,
}

impl Class {
    /// The class of registers of a type.
    pub(crate) fn of(ty: Type) -> Result<Class, String> {
        match ty.bits() {
            _ if ty == Type::Pred => Ok(Class::Pred),
            1..=32 => Ok(Class::W32),
            64 => Ok(Class::W64),
            _ => Err("128-bit registers are not supported".into()),
        }
    }
}

/// An operand of an op before it has an offset in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Not an operand: this number itself.
    Raw(u32),
    /// A register, by number.
    Register(u32),
    /// A constant in every lane.
    Const32(u32),
    /// A constant in every lane.
    Const64(u64),
    /// A predicate of every lane: all false or all true.
    ConstPred(bool),
    /// A special register.
    Special(Special),
    /// The 32-bit value at this byte of the parameters.
    Param32(u32),
    /// The 64-bit value at this byte of the parameters.
    Param64(u32),
}

/// How an op goes on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// With the op after it.
    Follow,
    /// At a label.
    Jump(LabelId),
    /// At a label or with the op after it.
    Branch(LabelId),
    /// At one of several labels.
    Table(Vec<LabelId>),
    /// With the op after it, or the kernel ends.
    MayEnd,
    /// The kernel ends.
    End,
}

/// An op over places.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) run: Handler,
    /// `d`, `a`, `b`, `c`, `e`.
    pub(crate) fields: [Place; 5],
    /// Bit `i`: field `i` is written.
    pub(crate) defs: u8,
    pub(crate) imm: i32,
    /// Operands beyond the five: place and whether it is written. Their index goes to `imm`.
    pub(crate) extra: Vec<(Place, bool)>,
    pub(crate) next: Next,
    pub(crate) line: u32,
    /// Under a guard: what it writes keeps its old value where the guard does not hold.
    pub(crate) guarded: bool,
    /// `griddepcontrol.wait`.
    pub(crate) waits: bool,
}

/// A guard that was opened: the index of its op.
pub(crate) struct OpenGuard(usize);

/// Collects the ops of one function.
pub(crate) struct Builder<'a> {
    pub(crate) ast: &'a ModuleAst,
    pub(crate) body: &'a Body,
    pub(crate) level: Level,
    /// Whether check ops are wanted.
    pub(crate) checked: bool,
    pub(crate) line: u32,
    pub(crate) drafts: Vec<Draft>,
    /// The class of each register, the function's first, then temporaries.
    pub(crate) classes: Vec<Option<Class>>,
    /// Where each label stands, as an index of `drafts`.
    pub(crate) labels: HashMap<LabelId, usize>,
    /// Offsets of shared variables by name.
    pub(crate) shared: HashMap<String, u64>,
    /// Offsets of local variables by their index in the body.
    pub(crate) local: HashMap<usize, u64>,
    /// The module's variables that the code names, by their index in the module.
    pub(crate) symbols: Vec<usize>,
    /// Where dynamic shared memory begins.
    pub(crate) dynamic_offset: u64,
    /// The entry's parameters, placed, and the size of the whole.
    pub(crate) params: (Vec<Param>, u32),
    /// Whether ops are under a guard at the moment.
    pub(crate) guarded: bool,
    /// What registers are mere copies of.
    pub(crate) replaced: Vec<Option<Place>>,
    /// How often each register of the function occurs.
    mentions: Vec<u32>,
}

fn count(operand: &Operand, mentions: &mut [u32]) {
    match operand {
        Operand::Reg(register) => mentions[register.0 as usize] += 1,
        Operand::Not(o) | Operand::Neg(o) | Operand::Address(o, _) | Operand::Offset(o, _) => {
            count(o, mentions)
        }
        Operand::Vector(list) | Operand::List(list) => list.iter().for_each(|o| count(o, mentions)),
        Operand::Pair(a, b) => {
            count(a, mentions);
            count(b, mentions);
        }
        _ => {}
    }
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        ast: &'a ModuleAst,
        function: &'a Function,
        body: &'a Body,
        level: Level,
    ) -> Builder<'a> {
        let mut mentions = vec![0; body.registers.len()];
        for item in &body.items {
            if let Item::Inst(inst) = item {
                let guard = inst.guard.iter().map(|(operand, _)| operand);
                inst.operands.iter().chain(guard).for_each(|operand| count(operand, &mut mentions));
            }
        }
        Builder {
            ast,
            body,
            level,
            checked: false,
            line: function.line,
            drafts: Vec::new(),
            classes: body.registers.iter().map(|&ty| Class::of(ty).ok()).collect(),
            labels: HashMap::new(),
            shared: HashMap::new(),
            local: HashMap::new(),
            symbols: Vec::new(),
            dynamic_offset: 0,
            params: lay_out(&function.params),
            guarded: false,
            replaced: Vec::new(),
            mentions,
        }
    }

    pub(crate) fn place_label(&mut self, label: LabelId) {
        self.labels.insert(label, self.drafts.len());
    }

    /// A new temporary.
    pub(crate) fn temp(&mut self, class: Class) -> Place {
        self.classes.push(Some(class));
        Place::Register(self.classes.len() as u32 - 1)
    }

    /// Appends an op that writes `d` and reads up to four places.
    pub(crate) fn op<H: Handle>(&mut self, d: Place, sources: &[Place]) -> &mut Draft {
        let mut fields = [Place::Raw(0); 5];
        fields[0] = d;
        fields[1..=sources.len()].copy_from_slice(sources);
        self.raw::<H>(fields, 1)
    }

    /// Appends an op with its fields as given.
    pub(crate) fn raw<H: Handle>(&mut self, fields: [Place; 5], defs: u8) -> &mut Draft {
        let run = select::<H>(self.level);
        self.push(run, fields, defs)
    }

    /// Appends an op of a function picked by the caller.
    pub(crate) fn push(&mut self, run: Handler, fields: [Place; 5], defs: u8) -> &mut Draft {
        self.drafts.push(Draft {
            run,
            fields,
            defs,
            imm: 0,
            extra: Vec::new(),
            next: Next::Follow,
            line: self.line,
            guarded: self.guarded,
            waits: false,
        });
        self.drafts.last_mut().expect("just pushed")
    }

    /// Opens a guard around the ops to come.
    pub(crate) fn open_guard(&mut self, predicate: Place, negated: bool) -> OpenGuard {
        let zero = Place::Raw(0);
        let fields = [zero, predicate, Place::Raw(negated.into()), zero, zero];
        self.raw::<control::Guard>(fields, 0);
        self.guarded = true;
        OpenGuard(self.drafts.len() - 1)
    }

    pub(crate) fn close_guard(&mut self, guard: OpenGuard) {
        self.guarded = false;
        self.raw::<control::Unguard>([Place::Raw(0); 5], 0);
        self.drafts[guard.0].imm = (self.drafts.len() - guard.0) as i32;
    }

    fn class_of(&self, register: RegId) -> Result<Class, String> {
        self.classes[register.0 as usize].ok_or_else(|| "128-bit registers are not supported".into())
    }

    /// A register as a predicate.
    pub(crate) fn predicate_register(&self, register: RegId) -> Result<Place, String> {
        match self.class_of(register)? {
            Class::Pred => Ok(Place::Register(register.0)),
            _ => Err("the guard is no predicate".into()),
        }
    }

    /// A destination of the class that `ty` has; `_` gets a temporary.
    pub(crate) fn dst(&mut self, operand: &Operand, ty: Type) -> Result<Place, String> {
        self.dst_class(operand, Class::of(ty)?)
    }

    /// A destination of a class.
    pub(crate) fn dst_class(&mut self, operand: &Operand, class: Class) -> Result<Place, String> {
        match operand {
            Operand::Sink => Ok(self.temp(class)),
            Operand::Reg(register) if self.class_of(*register)? == class => Ok(Place::Register(register.0)),
            Operand::Reg(_) => Err("the destination's register has another size than the operation".into()),
            other => Err(format!("{} is no destination", describe(other))),
        }
    }

    /// Whether a register occurs more than once in the function: a destination that does not is never read.
    pub(crate) fn mentioned_elsewhere(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Reg(register) => self.mentions.get(register.0 as usize).is_none_or(|&n| n > 1),
            Operand::Sink => false,
            _ => true,
        }
    }

    /// The class of a destination register.
    pub(crate) fn class(&self, operand: &Operand) -> Result<Class, String> {
        match operand {
            Operand::Reg(register) => self.class_of(*register),
            other => Err(format!("{} is no register", describe(other))),
        }
    }

    /// The width in bits of a destination register as declared.
    pub(crate) fn declared_bits(&self, operand: &Operand) -> u32 {
        match operand {
            Operand::Reg(register) => self.body.registers[register.0 as usize].bits(),
            _ => 32,
        }
    }

    /// Where a register's value is: in it, or in what it is a copy of.
    fn place_of(&self, register: RegId) -> Place {
        self.replaced.get(register.0 as usize).copied().flatten().unwrap_or(Place::Register(register.0))
    }

    /// A source of type `ty`.
    pub(crate) fn src(&mut self, operand: &Operand, ty: Type) -> Result<Place, String> {
        let class = Class::of(ty)?;
        if class == Class::Pred {
            return self.predicate(operand);
        }
        match operand {
            Operand::Reg(register) if self.class_of(*register)? == class => Ok(self.place_of(*register)),
            Operand::Reg(_) => Err("an operand's register has another size than the operation".into()),
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {
                constant(operand, ty).ok_or_else(|| "a constant of this type is not supported".into())
            }
            Operand::Special(name) => self.special(name, class),
            Operand::Name(_) | Operand::Local(_) | Operand::Offset(..) => self.symbol_value(operand, class),
            other => Err(format!("{} is no source of this operation", describe(other))),
        }
    }

    /// A source predicate; `!p` and constants included.
    pub(crate) fn predicate(&mut self, operand: &Operand) -> Result<Place, String> {
        match operand {
            Operand::Reg(register) => match self.class_of(*register)? {
                Class::Pred => Ok(Place::Register(register.0)),
                _ => Err("expected a predicate".into()),
            },
            Operand::Int(value) => Ok(Place::ConstPred(*value != 0)),
            Operand::Not(inner) => {
                let inner = self.predicate(inner)?;
                if let Place::ConstPred(value) = inner {
                    return Ok(Place::ConstPred(!value));
                }
                let out = self.temp(Class::Pred);
                self.op::<crate::ops::moves::NotP>(out, &[inner]);
                Ok(out)
            }
            other => Err(format!("{} is no predicate", describe(other))),
        }
    }

    /// The offset that a shared or local variable's name, or a parameter's, stands for; `None` for other names.
    pub(crate) fn static_address(&self, operand: &Operand) -> Option<(Space, u64)> {
        match operand {
            Operand::Local(index) => {
                let variable = &self.body.variables[*index];
                match variable.space {
                    Space::Local => self.local.get(index).map(|&at| (Space::Local, at)),
                    Space::Shared => Some((Space::Shared, self.shared_offset(&variable.name, variable.size))),
                    _ => None,
                }
            }
            Operand::Name(name) => {
                if let Some(&at) = self.shared.get(name) {
                    return Some((Space::Shared, at));
                }
                let variable =
                    self.ast.variables.iter().find(|v| v.name == *name && v.space == Space::Shared);
                if let Some(variable) = variable {
                    return Some((Space::Shared, self.shared_offset(name, variable.size)));
                }
                let param = self.params.0.iter().find(|p| p.name == *name)?;
                Some((Space::Param, param.offset.into()))
            }
            Operand::Offset(base, offset) => {
                let (space, at) = self.static_address(base)?;
                Some((space, at.wrapping_add(*offset as u64)))
            }
            _ => None,
        }
    }

    /// Static variables lie where `shared` says, dynamic memory behind them all.
    fn shared_offset(&self, name: &str, size: Option<u64>) -> u64 {
        match size {
            Some(_) => self.shared.get(name).copied().unwrap_or(0),
            None => self.dynamic_offset,
        }
    }

    /// The value of a symbol's name: an offset in its space, or a global address.
    fn symbol_value(&mut self, operand: &Operand, class: Class) -> Result<Place, String> {
        if let Some((_, offset)) = self.static_address(operand) {
            return Ok(match class {
                Class::W64 => Place::Const64(offset),
                _ => Place::Const32(offset as u32),
            });
        }
        let (name, offset) = match operand {
            Operand::Name(name) => (name, 0),
            Operand::Offset(base, offset) => match &**base {
                Operand::Name(name) => (name, *offset),
                _ => return Err("unsupported address".into()),
            },
            _ => return Err("unsupported address".into()),
        };
        let Some(index) = self.ast.variables.iter().position(|v| v.name == *name) else {
            return Err(format!("unknown name `{name}`"));
        };
        if class != Class::W64 {
            return Err(format!("the address of `{name}` needs a 64-bit register"));
        }
        let Ok(offset) = i32::try_from(offset) else { return Err("offset is too large".into()) };
        let number = self.symbols.iter().position(|&i| i == index).unwrap_or_else(|| {
            self.symbols.push(index);
            self.symbols.len() - 1
        });
        let out = self.temp(Class::W64);
        self.op::<crate::ops::moves::Symbol>(out, &[Place::Raw(number as u32)]).imm = offset;
        Ok(out)
    }

    fn special(&mut self, name: &str, class: Class) -> Result<Place, String> {
        use crate::ops::moves::{Clock, SharedSize};
        let clock = match name {
            "%clock" => Some((0, Class::W32)),
            "%clock64" => Some((1, Class::W64)),
            "%globaltimer" => Some((2, Class::W64)),
            "%globaltimer_lo" => Some((3, Class::W32)),
            "%clock_hi" | "%globaltimer_hi" => Some((4, Class::W32)),
            _ => None,
        };
        if let Some((which, width)) = clock {
            if class != width {
                return Err(format!("{name} needs a register of another size"));
            }
            let out = self.temp(width);
            self.op::<Clock>(out, &[]).imm = which;
            return Ok(out);
        }
        if let Some(which) = ["%dynamic_smem_size", "%total_smem_size"].iter().position(|n| *n == name) {
            let out = self.temp(Class::W32);
            self.op::<SharedSize>(out, &[]).imm = which as i32;
            return Ok(out);
        }
        let special =
            Special::parse(name).ok_or_else(|| format!("special register {name} is not supported"))?;
        match class {
            Class::W32 => Ok(Place::Special(special)),
            Class::W64 => {
                let out = self.temp(Class::W64);
                self.op::<crate::ops::convert::Zext64>(out, &[Place::Special(special)]);
                Ok(out)
            }
            Class::Pred => Err(format!("{name} is no predicate")),
        }
    }
}

/// A constant operand of type `ty`.
pub(crate) fn constant(operand: &Operand, ty: Type) -> Option<Place> {
    let wide = Class::of(ty) == Ok(Class::W64);
    Some(match operand {
        Operand::Int(value) if wide => Place::Const64(match ty {
            Type::F64 => (*value as i64 as f64).to_bits(),
            _ => *value,
        }),
        Operand::Int(value) => Place::Const32(match ty {
            Type::F32 => (*value as i64 as f32).to_bits(),
            _ if ty.bits() <= 16 => *value as u32 & 0xffff,
            _ => *value as u32,
        }),
        Operand::F32(bits) if wide => Place::Const64(f64::from(f32::from_bits(*bits)).to_bits()),
        Operand::F32(bits) => Place::Const32(*bits),
        Operand::F64(bits) if wide => Place::Const64(*bits),
        Operand::F64(bits) if ty == Type::F32 => Place::Const32((f64::from_bits(*bits) as f32).to_bits()),
        _ => return None,
    })
}

/// An operand in words, for messages.
pub(crate) fn describe(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Reg(_) => "a register".into(),
        Operand::Not(_) => "a negated predicate".into(),
        Operand::Neg(_) => "a negated operand".into(),
        Operand::Int(_) => "an integer".into(),
        Operand::F32(_) | Operand::F64(_) => "a floating-point number".into(),
        Operand::Special(name) => format!("special register {name}"),
        Operand::Label(_) => "a label".into(),
        Operand::Local(_) => "a variable".into(),
        Operand::Table(_) => "a branch table".into(),
        Operand::Address(..) => "an address".into(),
        Operand::Offset(..) => "a name with an offset".into(),
        Operand::Vector(_) => "a vector".into(),
        Operand::Pair(..) => "a pair".into(),
        Operand::Sink => "`_`".into(),
        Operand::List(_) => "an argument list".into(),
    }
}
