//! Names of a function's body to numbered registers, labels, variables and branch tables, and its nested scopes
//! to one flat list.

use std::collections::HashMap;

use super::ast::{Function, Instruction, LabelId, Operand, RegId, Statement, Type, Variable};

/// More registers than this in one function are refused.
const MAX_REGISTERS: u32 = 1 << 20;

/// A function with its names resolved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Body {
    /// The type of each register.
    pub(crate) registers: Vec<Type>,
    /// The number of labels.
    pub(crate) labels: u32,
    /// Variables declared in the body.
    pub(crate) variables: Vec<Variable>,
    /// Tables of branch targets.
    pub(crate) tables: Vec<Vec<LabelId>>,
    /// The flat body.
    pub(crate) items: Vec<Item>,
}

/// An element of the flat body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// The place of a label.
    Label(LabelId),
    /// An instruction.
    Inst(Instruction),
}

#[derive(Default)]
struct Scope {
    registers: HashMap<String, RegId>,
    /// `prefix<count>`: first register and count.
    ranges: HashMap<String, (u32, u32)>,
    labels: HashMap<String, LabelId>,
    variables: HashMap<String, usize>,
    tables: HashMap<String, usize>,
}

/// Resolves the names of `function`'s body (empty when it has none).
pub(crate) fn resolve(function: &Function) -> Result<Body, (u32, String)> {
    let mut resolver = Resolver {
        scopes: Vec::new(),
        body: Body {
            registers: Vec::new(),
            labels: 0,
            variables: Vec::new(),
            tables: Vec::new(),
            items: Vec::new(),
        },
    };
    if let Some(statements) = &function.body {
        resolver.scope(statements)?;
    }
    Ok(resolver.body)
}

struct Resolver {
    scopes: Vec<Scope>,
    body: Body,
}

impl Resolver {
    fn scope(&mut self, statements: &[Statement]) -> Result<(), (u32, String)> {
        // Labels may be used before they are placed, so they are declared first.
        let mut scope = Scope::default();
        for statement in statements {
            if let Statement::Label { name, line } = statement {
                let id = LabelId(self.body.labels);
                self.body.labels += 1;
                if scope.labels.insert(name.clone(), id).is_some() {
                    return Err((*line, format!("label `{name}` is defined twice")));
                }
            }
        }
        self.scopes.push(scope);
        // Branch tables may follow their use too.
        for statement in statements {
            if let Statement::Targets { name, labels, line } = statement {
                let labels = labels
                    .iter()
                    .map(|label| match self.find(label) {
                        Some(Operand::Label(id)) => Ok(id),
                        _ => Err((*line, format!("unknown label `{label}`"))),
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let index = self.body.tables.len();
                self.top().tables.insert(name.clone(), index);
                self.body.tables.push(labels);
            }
        }
        for statement in statements {
            self.statement(statement)?;
        }
        self.scopes.pop();
        Ok(())
    }

    fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("inside a scope")
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), (u32, String)> {
        match statement {
            Statement::Scope(inner) => self.scope(inner)?,
            Statement::Targets { .. } => {}
            Statement::Label { name, .. } => {
                let id = self.top().labels[name];
                self.body.items.push(Item::Label(id));
            }
            Statement::Var(variable) => {
                let index = self.body.variables.len();
                self.body.variables.push(variable.clone());
                self.top().variables.insert(variable.name.clone(), index);
            }
            Statement::Reg { ty, name, count, line } => {
                let first = self.body.registers.len() as u32;
                let n = count.unwrap_or(1);
                if n > MAX_REGISTERS - first.min(MAX_REGISTERS) {
                    return Err((*line, format!("more than {MAX_REGISTERS} registers")));
                }
                self.body.registers.resize((first + n) as usize, *ty);
                match count {
                    Some(n) => {
                        self.top().ranges.insert(name.clone(), (first, *n));
                    }
                    None => {
                        self.top().registers.insert(name.clone(), RegId(first));
                    }
                }
            }
            Statement::Inst(inst) => {
                let mut inst = inst.clone();
                let line = inst.line;
                if let Some((guard, _)) = &mut inst.guard {
                    self.operand(guard);
                    if !matches!(guard, Operand::Reg(_)) {
                        return Err((line, "the guard is no predicate register".into()));
                    }
                }
                for operand in &mut inst.operands {
                    self.operand(operand);
                }
                self.body.items.push(Item::Inst(inst));
            }
        }
        Ok(())
    }

    /// Replaces the names inside `operand`; those that are not the function's stay, for the module to resolve.
    fn operand(&self, operand: &mut Operand) {
        match operand {
            Operand::Name(name) => {
                if let Some(found) = self.find(name) {
                    *operand = found;
                } else if name.starts_with('%') {
                    *operand = Operand::Special(name.clone());
                } else if name == "WARP_SZ" {
                    *operand = Operand::Int(32);
                }
            }
            Operand::Not(inner)
            | Operand::Neg(inner)
            | Operand::Address(inner, _)
            | Operand::Offset(inner, _) => self.operand(inner),
            Operand::Vector(list) | Operand::List(list) => list.iter_mut().for_each(|o| self.operand(o)),
            Operand::Pair(a, b) => {
                self.operand(a);
                self.operand(b);
            }
            _ => {}
        }
    }

    fn find(&self, name: &str) -> Option<Operand> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = &name[prefix.len()..];
        for scope in self.scopes.iter().rev() {
            if let Some(&id) = scope.registers.get(name) {
                return Some(Operand::Reg(id));
            }
            if !number.is_empty()
                && let Some(&(first, count)) = scope.ranges.get(prefix)
                && let Ok(n) = number.parse::<u32>()
                && n < count
            {
                return Some(Operand::Reg(RegId(first + n)));
            }
            if let Some(&id) = scope.labels.get(name) {
                return Some(Operand::Label(id));
            }
            if let Some(&index) = scope.variables.get(name) {
                return Some(Operand::Local(index));
            }
            if let Some(&index) = scope.tables.get(name) {
                return Some(Operand::Table(index));
            }
        }
        None
    }
}
