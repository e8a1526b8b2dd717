//! What an entry does around `griddepcontrol.wait`, from its text alone: which paths end without it, and what they do before it.
//!
//! A launch with programmatic dependence may run beside the one ahead of it until its threads wait. That is sound when every path
//! waits, when nothing is stored before, and when what is read before is not what the launch ahead writes. The first two are
//! properties of the text; for the third the text says which parameters such reads may go through.

use std::collections::{BTreeSet, HashMap};

use crate::ptx::ast::{Function, Instruction, LabelId, Operand};
use crate::ptx::resolve::{Body, Item, resolve};

/// An entry's use of `griddepcontrol`. Lines are 1-based lines of the PTX text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependence {
    /// The first `griddepcontrol` of any kind.
    pub controls: Option<u32>,
    /// An end of the kernel that a path reaches without an unguarded wait.
    pub unwaited: Option<u32>,
    /// A store, an atomic operation or a call, on memory that other launches may see, that a path reaches before the wait.
    pub early_store: Option<u32>,
    /// A `launch_dependents` that a path reaches before the wait: the next launch may then begin while those ahead of this one run.
    pub early_trigger: Option<u32>,
    /// Indices of the parameters that the address of a read before the wait may be made of, ascending. It may name too many:
    /// scalars, and what an index was read from.
    pub early_reads: Vec<u16>,
    /// The same of reads by the non-coherent path (`ld.global.nc`) after the wait: what lies there must not change
    /// while the kernel runs, and it runs beside the launch ahead.
    pub constant_reads: Vec<u16>,
}

impl Dependence {
    /// Whether the entry may be launched with programmatic dependence: it waits on every path, and stores nothing before.
    pub fn waits(&self) -> bool {
        self.controls.is_some() && self.unwaited.is_none() && self.early_store.is_none()
    }
}

/// Analyses one entry.
pub(crate) fn analyse(function: &Function) -> Result<Dependence, (u32, String)> {
    let body = resolve(function)?;
    let params: HashMap<&str, u16> =
        function.params.iter().enumerate().map(|(index, p)| (p.name.as_str(), index as u16)).collect();
    let instructions = || {
        body.items.iter().filter_map(|item| match item {
            Item::Inst(inst) => Some(inst),
            Item::Label(_) => None,
        })
    };
    let controls = instructions().find(|inst| base(inst) == "griddepcontrol").map(|inst| inst.line);
    let mut found = Dependence { controls, ..Dependence::default() };
    let (early, end) = before_the_wait(&body);
    found.unwaited = end.map(|at| match body.items.get(at) {
        Some(Item::Inst(inst)) => inst.line,
        // The end is fallen off.
        _ => instructions().next_back().map_or(function.line, |inst| inst.line),
    });
    // Before the wait registers hold only what was computed before it.
    let (taints, early_taints) =
        (Taints::of(&body, &params, |_| true), Taints::of(&body, &params, |at| early[at]));
    let (mut early_reads, mut constant_reads) = (BTreeSet::new(), BTreeSet::new());
    for (at, item) in body.items.iter().enumerate() {
        let Item::Inst(inst) = item else { continue };
        let reads = shared_memory(inst).then(|| inst.operands.iter().rfind(|o| is_address(o))).flatten();
        if !early[at] {
            if has(inst, "nc") {
                reads.iter().for_each(|address| taints.collect(address, &mut constant_reads));
            }
            continue;
        }
        let place = match base(inst) {
            "griddepcontrol" if has(inst, "launch_dependents") => &mut found.early_trigger,
            "st" | "red" | "atom" | "multimem" if shared_memory(inst) => &mut found.early_store,
            "cp" if has(inst, "bulk") || has(inst, "reduce") => &mut found.early_store,
            "call" => &mut found.early_store,
            _ => {
                if matches!(base(inst), "ld" | "ldu" | "cp") {
                    reads.iter().for_each(|address| early_taints.collect(address, &mut early_reads));
                }
                continue;
            }
        };
        place.get_or_insert(inst.line);
    }
    found.early_reads = early_reads.into_iter().collect();
    found.constant_reads = constant_reads.into_iter().collect();
    Ok(found)
}

fn base(inst: &Instruction) -> &str {
    inst.opcode.split('.').next().unwrap_or_default()
}

fn has(inst: &Instruction, modifier: &str) -> bool {
    inst.opcode.split('.').skip(1).any(|part| part == modifier)
}

/// Whether an access may be to memory that other launches see: global, or generic.
fn shared_memory(inst: &Instruction) -> bool {
    matches!(base(inst), "ld" | "ldu" | "st" | "red" | "atom" | "multimem" | "cp")
        && !inst.opcode.split('.').any(|part| {
            matches!(part.split("::").next(), Some("local" | "param" | "const"))
                || (part.starts_with("shared") && base(inst) != "cp")
        })
}

fn is_address(operand: &Operand) -> bool {
    matches!(operand, Operand::Address(..))
}

/// Which items some path reaches without an unguarded wait before them, and one of the places where the kernel may end on
/// such a path.
fn before_the_wait(body: &Body) -> (Vec<bool>, Option<usize>) {
    let labels: HashMap<LabelId, usize> = body
        .items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match item {
            Item::Label(label) => Some((*label, at)),
            Item::Inst(_) => None,
        })
        .collect();
    let mut early = vec![false; body.items.len()];
    let (mut open, mut end) = (vec![0], None);
    while let Some(at) = open.pop() {
        let Some(item) = body.items.get(at) else {
            end.get_or_insert(at);
            continue;
        };
        if std::mem::replace(&mut early[at], true) {
            continue;
        }
        let Item::Inst(inst) = item else {
            open.push(at + 1);
            continue;
        };
        let (guarded, mut follows) = (inst.guard.is_some(), true);
        match base(inst) {
            "griddepcontrol" if has(inst, "wait") => follows = guarded,
            "ret" | "exit" => {
                end.get_or_insert(at);
                follows = guarded;
            }
            "trap" => follows = guarded,
            "bra" | "brx" => {
                follows = guarded;
                for operand in &inst.operands {
                    let targets = match operand {
                        Operand::Label(label) => std::slice::from_ref(label),
                        Operand::Table(table) => &body.tables[*table][..],
                        _ => &[],
                    };
                    open.extend(targets.iter().filter_map(|label| labels.get(label)));
                }
            }
            _ => {}
        }
        if follows {
            open.push(at + 1);
        }
    }
    (early, end)
}

/// Of each register, which parameters its values may be made of, whatever the path.
struct Taints {
    registers: Vec<BTreeSet<u16>>,
}

impl Taints {
    /// Of what the instructions that `counts` says, by their place among the items, compute.
    fn of(body: &Body, params: &HashMap<&str, u16>, counts: impl Fn(usize) -> bool) -> Taints {
        let mut taints = Taints { registers: vec![BTreeSet::new(); body.registers.len()] };
        // What shared and local memory were given, all of it in one.
        let mut stored = BTreeSet::new();
        loop {
            let mut changed = false;
            for (at, item) in body.items.iter().enumerate() {
                let Item::Inst(inst) = item else { continue };
                if !counts(at) {
                    continue;
                }
                let Some((first, rest)) = inst.operands.split_first() else { continue };
                let mut sources = BTreeSet::new();
                rest.iter().for_each(|operand| taints.gather(operand, params, &mut sources));
                if is_address(first) {
                    let before = stored.len();
                    stored.extend(sources);
                    changed |= stored.len() != before;
                    continue;
                }
                if matches!(base(inst), "ld" | "ldu" | "atom") {
                    sources.extend(&stored);
                }
                taints.give(first, &sources, &mut changed);
            }
            if !changed {
                return taints;
            }
        }
    }

    fn give(&mut self, destination: &Operand, sources: &BTreeSet<u16>, changed: &mut bool) {
        match destination {
            Operand::Reg(register) => {
                let set = &mut self.registers[register.0 as usize];
                let before = set.len();
                set.extend(sources);
                *changed |= set.len() != before;
            }
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().for_each(|operand| self.give(operand, sources, changed));
            }
            Operand::Pair(a, b) => {
                self.give(a, sources, changed);
                self.give(b, sources, changed);
            }
            _ => {}
        }
    }

    fn gather(&self, operand: &Operand, params: &HashMap<&str, u16>, into: &mut BTreeSet<u16>) {
        match operand {
            Operand::Name(name) => into.extend(params.get(name.as_str())),
            Operand::Reg(register) => into.extend(&self.registers[register.0 as usize]),
            Operand::Not(inner)
            | Operand::Neg(inner)
            | Operand::Address(inner, _)
            | Operand::Offset(inner, _) => self.gather(inner, params, into),
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().for_each(|operand| self.gather(operand, params, into));
            }
            Operand::Pair(a, b) => {
                self.gather(a, params, into);
                self.gather(b, params, into);
            }
            _ => {}
        }
    }

    /// The parameters that an address may be made of.
    fn collect(&self, address: &Operand, into: &mut BTreeSet<u16>) {
        self.gather(address, &HashMap::new(), into);
    }
}

#[cfg(test)]
mod tests {
    use super::Dependence;
    use crate::census;

    /// The entry's first body line is line 6.
    fn of(body: &str) -> Dependence {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e(.param .u64 e_0, .param .u64 e_1, .param .u32 e_2) {{\n\
             .reg .b64 %x<9>; .reg .b32 %r<9>; .reg .pred %p<3>; .shared .align 4 .b8 s[64];\n{body}\n}}\n"
        );
        census("m", &text).unwrap().entries.remove(0).dependence
    }

    const LOADS: &str = "ld.param.u64 %x1, [e_0]; ld.param.u64 %x2, [e_1]; ld.param.u32 %r1, [e_2];\n";

    #[test]
    fn a_kernel_that_waits_first_has_nothing_to_object_to() {
        let found = of(&format!(
            "{LOADS}griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nld.global.u32 %r2, [%x1];\nst.global.u32 [%x2], %r2;\nret;"
        ));
        assert_eq!(found, Dependence { controls: Some(7), ..Dependence::default() });
        assert!(found.waits());
    }

    #[test]
    fn reads_ahead_of_the_wait_name_the_parameters_of_their_address() {
        // The index is read through the second parameter and scaled by the scalar.
        let found = of(&format!(
            "{LOADS}ld.global.u32 %r2, [%x2];\nmad.lo.u32 %r3, %r2, %r1, 5;\nmul.wide.u32 %x3, %r3, 4;\nadd.u64 %x4, %x1, %x3;\n\
             ld.global.v2.u32 {{%r4, %r5}}, [%x4+8];\ngriddepcontrol.wait;\nret;"
        ));
        assert_eq!(found.early_reads, [0, 1, 2]);
        assert!(found.waits());
        let found = of(&format!(
            "{LOADS}ld.global.u32 %r2, [%x2+4];\ngriddepcontrol.wait;\nld.global.u32 %r3, [%x1];\nret;"
        ));
        assert_eq!(found.early_reads, [1]);
        // By way of shared memory; an asynchronous copy reads by its second address.
        let found = of(&format!(
            "{LOADS}st.shared.u64 [s], %x1;\nld.shared.u64 %x5, [s];\nld.global.u32 %r2, [%x5];\ngriddepcontrol.wait;\nret;"
        ));
        assert_eq!((&found.early_reads[..], found.waits()), (&[0][..], true));
        let found = of(&format!(
            "{LOADS}mov.u32 %r6, s;\ncp.async.ca.shared.global [%r6], [%x2], 4;\ngriddepcontrol.wait;\nret;"
        ));
        assert_eq!((&found.early_reads[..], found.waits()), (&[1][..], true));
    }

    #[test]
    fn what_a_register_holds_later_is_no_matter_before_the_wait() {
        let found = of(&format!(
            "{LOADS}ld.global.u32 %r2, [%x1];\ngriddepcontrol.wait;\n$A:\nmov.u64 %x1, %x2;\nld.global.u32 %r3, [%x1];\nbra $A;"
        ));
        assert_eq!(found.early_reads, [0]);
    }

    #[test]
    fn non_coherent_reads_after_the_wait_name_theirs() {
        let found = of(&format!("{LOADS}griddepcontrol.wait;\nld.global.nc.u32 %r2, [%x2];\nret;"));
        assert_eq!((&found.early_reads[..], &found.constant_reads[..]), (&[][..], &[1][..]));
    }

    #[test]
    fn paths_without_a_wait_and_what_they_do_are_found() {
        assert_eq!(of("ret;").unwaited, Some(6));
        assert_eq!(of("griddepcontrol.launch_dependents;").early_trigger, Some(6));
        let guarded = of("setp.eq.u32 %p1, %r1, 0;\n@%p1 griddepcontrol.wait;\nret;");
        assert_eq!(guarded.unwaited, Some(8));
        let left = of("setp.eq.u32 %p1, %r1, 0;\n@%p1 ret;\ngriddepcontrol.wait;\nret;");
        assert_eq!(left.unwaited, Some(7));
        let branch = "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra $A;\ngriddepcontrol.wait;\nbra $B;\n$A:\n";
        assert_eq!(of(&format!("{branch}griddepcontrol.wait;\n$B:\nret;")).unwaited, None);
        let around = of(&format!("{branch}$B:\nst.global.u32 [%x1], %r1;\nret;"));
        assert_eq!((around.unwaited, around.early_store), (Some(13), Some(12)));
        // A loop that turns before the wait ends after it all the same.
        let turns =
            "$A:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 9;\n@%p1 bra $A;\ngriddepcontrol.wait;\nret;";
        assert!(of(turns).waits());
        for store in ["st.u32 [%x1], %r1;", "red.global.add.u32 [%x1], 1;", "atom.add.u32 %r2, [%x1], 1;"] {
            assert_eq!(of(&format!("{store}\ngriddepcontrol.wait;\nret;")).early_store, Some(6), "{store}");
        }
        assert!(of("st.shared.u32 [s], %r1;\ngriddepcontrol.wait;\nret;").waits());
    }
}
