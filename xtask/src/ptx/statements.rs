//! The statements of a PTX text, as far as lints need them, on the lines they stand on: opcode, operands and line.

/// One instruction.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// 1-based line of the opcode.
    pub line: usize,
    /// With its modifiers, `add.rn.f32`.
    pub opcode: &'a str,
    /// What follows it, up to the semicolon.
    pub operands: &'a str,
}

/// Every instruction of `text`, in order. Directives, labels, guards, braces and comments are left out.
pub fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for piece in code.split(';') {
            let mut rest = piece.trim();
            loop {
                let label = rest
                    .find(':')
                    .filter(|&at| rest[..at].chars().all(|c| c.is_alphanumeric() || "$_%".contains(c)));
                rest = match label {
                    Some(at) => rest[at + 1..].trim_start(),
                    None if rest.starts_with(['{', '}']) => rest[1..].trim_start(),
                    None => break,
                };
            }
            if rest.starts_with('@') {
                rest = rest.split_once(char::is_whitespace).map_or("", |(_, after)| after.trim_start());
            }
            // Instructions start with a letter; directives with a dot, parameters and continuations with % or punctuation. A line
            // that does not end in a semicolon is a signature's or a directive's.
            if rest.starts_with(|c: char| c.is_ascii_lowercase()) && code.contains(';') {
                let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                found.push(Statement { line: index + 1, opcode, operands: operands.trim() });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn instructions_are_found_behind_labels_guards_and_braces() {
        let text = ".version 9.0\n$L__BB0_1:\n\t@%p1 bra \t$L__BB0_1; // back\n{ .reg .b16 l; cvt.f32.f16 %f1, l; }\n\tret;\n";
        let found: Vec<(usize, &str, &str)> =
            statements(text).into_iter().map(|s| (s.line, s.opcode, s.operands)).collect();
        assert_eq!(found, [(3, "bra", "$L__BB0_1"), (4, "cvt.f32.f16", "%f1, l"), (5, "ret", "")]);
    }
}
