//! Tokens to the syntax tree.

use super::ast::{Function, Instruction, ModuleAst, Operand, ParamDecl, Space, Statement, Type, Variable};
use super::lex::{Token, lex};

/// Line and message.
pub(crate) type Error = (u32, String);
type Result<T> = std::result::Result<T, Error>;

/// Braces nest no deeper than this; the parser recurses over them.
const MAX_DEPTH: u32 = 64;

/// Parses a module.
pub(crate) fn parse(text: &str) -> Result<ModuleAst> {
    let tokens = lex(text)?;
    Parser { tokens: &tokens, at: 0 }.module()
}

struct Parser<'a> {
    tokens: &'a [(Token<'a>, u32)],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|t| t.0)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.1)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T> {
        Err((self.line(), what.into()))
    }

    fn is(&self, c: u8) -> bool {
        self.peek() == Some(Token::Punct(c))
    }

    fn eat(&mut self, c: u8) -> bool {
        let found = self.is(c);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: u8) -> Result<()> {
        if self.eat(c) {
            return Ok(());
        }
        self.fail(format!("expected `{}`, found {}", c as char, describe(self.peek())))
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Token::Word(w)) => {
                self.at += 1;
                Ok(w)
            }
            other => self.fail(format!("expected {what}, found {}", describe(other))),
        }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    fn unsigned(&mut self, what: &str) -> Result<u64> {
        match self.operand_number()? {
            Operand::Int(n) => Ok(n),
            _ => self.fail(format!("expected an integer for {what}")),
        }
    }

    fn small(&mut self, what: &str) -> Result<u32> {
        let n = self.unsigned(what)?;
        u32::try_from(n).or_else(|_| self.fail(format!("{what} {n} is too large")))
    }

    fn module(mut self) -> Result<ModuleAst> {
        let mut module = ModuleAst {
            version: (0, 0),
            target: String::new(),
            variables: Vec::new(),
            functions: Vec::new(),
        };
        while let Some(token) = self.peek() {
            let Token::Word(word) = token else {
                return self.fail(format!("expected a directive, found {}", describe(Some(token))));
            };
            match word {
                ".version" => {
                    self.at += 1;
                    module.version = self.version()?;
                }
                ".target" => {
                    self.at += 1;
                    module.target = self.word("a target")?.to_string();
                    while self.eat(b',') {
                        self.word("a target")?;
                    }
                }
                ".address_size" => {
                    self.at += 1;
                    if self.unsigned("the address size")? != 64 {
                        return self.fail("only .address_size 64 is supported");
                    }
                }
                ".visible" | ".extern" | ".weak" | ".common" => self.at += 1,
                ".entry" | ".func" => {
                    self.at += 1;
                    module.functions.push(self.function(word == ".entry")?);
                }
                ".file" | ".pragma" | ".alias" => {
                    let line = self.line();
                    while self.at < self.tokens.len() && self.line() == line && !self.eat(b';') {
                        self.at += 1;
                    }
                }
                ".section" => {
                    self.at += 1;
                    self.word("a section's name")?;
                    self.expect(b'{')?;
                    while !self.eat(b'}') {
                        if self.next().is_none() {
                            return self.fail("section without an end");
                        }
                    }
                }
                ".global" | ".const" | ".shared" => {
                    let variables = self.variables()?;
                    module.variables.extend(variables);
                }
                _ => return self.fail(format!("unknown directive `{word}`")),
            }
        }
        Ok(module)
    }

    fn version(&mut self) -> Result<(u32, u32)> {
        if let Some(Token::Number(n)) = self.next()
            && let Some((major, minor)) = n.split_once('.')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            return Ok((major, minor));
        }
        self.fail(".version needs `major.minor`")
    }

    fn function(&mut self, entry: bool) -> Result<Function> {
        let line = self.line();
        if !entry && self.is(b'(') {
            self.params()?;
        }
        let name = self.word("a function's name")?.to_string();
        let params = if self.is(b'(') { self.params()? } else { Vec::new() };
        let (mut max_ntid, mut req_ntid) = (None, None);
        while let Some(Token::Word(directive)) = self.peek() {
            self.at += 1;
            match directive {
                ".maxntid" => max_ntid = Some(self.triple(".maxntid")?),
                ".reqntid" => req_ntid = Some(self.triple(".reqntid")?),
                ".minnctapersm" | ".maxnreg" | ".maxnctapersm" | ".maxclusterrank" => {
                    self.unsigned(directive)?;
                }
                ".noreturn" | ".explicitcluster" | ".blocksareclusters" => {}
                ".reqnctapercluster" => {
                    if self.triple(".reqnctapercluster")? != [1, 1, 1] {
                        return self.fail(format!("entry {name}: clusters are not supported"));
                    }
                }
                ".pragma" => {
                    self.next();
                    self.expect(b';')?;
                }
                other => return self.fail(format!("unknown directive `{other}` of function {name}")),
            }
        }
        let body = if self.eat(b';') {
            None
        } else {
            self.expect(b'{')?;
            Some(self.scope(0)?)
        };
        Ok(Function { name, entry, params, max_ntid, req_ntid, line, body })
    }

    fn triple(&mut self, what: &str) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        for (i, n) in out.iter_mut().enumerate() {
            if i > 0 && !self.eat(b',') {
                break;
            }
            *n = self.small(what)?;
        }
        Ok(out)
    }

    fn params(&mut self) -> Result<Vec<ParamDecl>> {
        self.expect(b'(')?;
        let mut params = Vec::new();
        while !self.eat(b')') {
            if !params.is_empty() {
                self.expect(b',')?;
            }
            if !self.eat_word(".param") && !self.eat_word(".reg") {
                return self.fail("expected `.param`");
            }
            let mut align = None;
            let mut ty = None;
            let mut pointer = false;
            while let Some(Token::Word(w)) = self.peek()
                && let Some(directive) = w.strip_prefix('.')
            {
                self.at += 1;
                match directive {
                    // The alignment after `.ptr` is the pointee's.
                    "align" => {
                        let n = self.small("an alignment")?;
                        align = align.or((!pointer).then_some(n));
                    }
                    "ptr" => pointer = true,
                    "global" | "const" | "shared" | "local" if pointer => {}
                    _ => match Type::parse(directive) {
                        Some(t) => ty = Some(t),
                        None => return self.fail(format!("unknown directive `{w}` of a parameter")),
                    },
                }
            }
            let Some(ty) = ty else { return self.fail("a parameter without a type") };
            let name = self.word("a parameter's name")?.to_string();
            let mut size = u64::from(ty.bytes());
            while self.eat(b'[') {
                let n = if self.is(b']') { 0 } else { self.unsigned("a size")? };
                size = size.saturating_mul(n);
                self.expect(b']')?;
            }
            // The hardware's limit is 32764 bytes for all parameters of a kernel.
            let Ok(size) = u16::try_from(size) else {
                return self.fail(format!("parameter {name} is too large ({size} bytes)"));
            };
            let align = align.unwrap_or(ty.bytes());
            if !align.is_power_of_two() || align > 256 {
                return self
                    .fail(format!("parameter {name}: alignment {align} is no power of two up to 256"));
            }
            params.push(ParamDecl { name, size: size.into(), align });
        }
        Ok(params)
    }

    /// Variables of one declaration, up to and including its `;`.
    fn variables(&mut self) -> Result<Vec<Variable>> {
        let line = self.line();
        let space = match self.word("a state space")? {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            _ => Space::Param,
        };
        let (mut align, mut ty, mut vector) = (None, None, 1u64);
        while let Some(Token::Word(w)) = self.peek()
            && let Some(directive) = w.strip_prefix('.')
        {
            self.at += 1;
            match directive {
                "align" => align = Some(self.small("an alignment")?),
                "v2" => vector = 2,
                "v4" => vector = 4,
                "attribute" => {
                    self.expect(b'(')?;
                    while !self.eat(b')') {
                        if self.next().is_none() {
                            return self.fail("attribute without an end");
                        }
                    }
                }
                _ => match Type::parse(directive) {
                    Some(t) => ty = Some(t),
                    None => return self.fail(format!("unknown directive `{w}` of a variable")),
                },
            }
        }
        let Some(ty) = ty else { return self.fail("a variable without a type") };
        let element = u64::from(ty.bytes()) * vector;
        let align = align.unwrap_or(element as u32);
        if !align.is_power_of_two() || align > 1024 {
            return self.fail(format!("alignment {align} is no power of two up to 1024"));
        }
        let mut out = Vec::new();
        loop {
            let name = self.word("a variable's name")?.to_string();
            let mut size = Some(element);
            while self.eat(b'[') {
                if self.is(b']') {
                    size = None;
                } else {
                    let n = self.unsigned("an array's length")?;
                    size = match size.map(|s| s.checked_mul(n)) {
                        Some(Some(s)) => Some(s),
                        Some(None) => return self.fail(format!("variable {name} is too large")),
                        None => None,
                    };
                }
                self.expect(b']')?;
            }
            let mut init = Vec::new();
            if self.eat(b'=') {
                self.initialiser(&name, ty, &mut init, 0)?;
                if size.is_none() {
                    size = Some(init.len() as u64);
                }
                if size.is_some_and(|s| init.len() as u64 > s) {
                    return self.fail(format!("variable {name} has more initial values than elements"));
                }
            }
            out.push(Variable { name, space, align, size, init, line });
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(out)
    }

    fn initialiser(&mut self, name: &str, ty: Type, out: &mut Vec<u8>, depth: u32) -> Result<()> {
        if depth > MAX_DEPTH {
            return self.fail("braces nest too deep");
        }
        if self.eat(b'{') {
            while !self.eat(b'}') {
                self.initialiser(name, ty, out, depth + 1)?;
                if !self.is(b'}') {
                    self.expect(b',')?;
                }
            }
            return Ok(());
        }
        let bytes = ty.bytes() as usize;
        let value = match (self.operand_number(), ty) {
            (Ok(Operand::Int(n)), _) => n,
            (Ok(Operand::F32(bits)), Type::F32 | Type::B32) => bits.into(),
            (Ok(Operand::F64(bits)), Type::F64 | Type::B64) => bits,
            (Ok(Operand::F64(bits)), Type::F32) => (f64::from_bits(bits) as f32).to_bits().into(),
            _ => {
                return self.fail(format!("variable {name}: only numbers are supported as initial values"));
            }
        };
        out.extend_from_slice(&value.to_le_bytes()[..bytes.min(8)]);
        Ok(())
    }

    fn scope(&mut self, depth: u32) -> Result<Vec<Statement>> {
        if depth > MAX_DEPTH {
            return self.fail("braces nest too deep");
        }
        let mut out = Vec::new();
        loop {
            if self.eat(b'}') {
                return Ok(out);
            }
            if self.eat(b'{') {
                out.push(Statement::Scope(self.scope(depth + 1)?));
                continue;
            }
            if self.eat(b';') {
                continue;
            }
            let line = self.line();
            match self.peek() {
                None => return self.fail("body without an end"),
                Some(Token::Punct(b'@')) => out.push(self.instruction()?),
                Some(Token::Word(w)) if w.starts_with('.') => self.directive(w, &mut out)?,
                Some(Token::Word(w)) => {
                    if self.tokens.get(self.at + 1).is_some_and(|t| t.0 == Token::Punct(b':')) {
                        self.at += 2;
                        if self.eat_word(".branchtargets") {
                            let mut labels = vec![self.word("a label")?.to_string()];
                            while self.eat(b',') {
                                labels.push(self.word("a label")?.to_string());
                            }
                            self.expect(b';')?;
                            out.push(Statement::Targets { name: w.into(), labels, line });
                        } else {
                            out.push(Statement::Label { name: w.into(), line });
                        }
                    } else {
                        out.push(self.instruction()?);
                    }
                }
                other => return self.fail(format!("expected a statement, found {}", describe(other))),
            }
        }
    }

    fn directive(&mut self, word: &str, out: &mut Vec<Statement>) -> Result<()> {
        let line = self.line();
        match word {
            ".reg" => {
                self.at += 1;
                let text = self.word("a register's type")?;
                let Some(ty) = text.strip_prefix('.').and_then(Type::parse) else {
                    return self.fail(format!("unknown register type `{text}`"));
                };
                loop {
                    let name = self.word("a register's name")?.to_string();
                    let count = if self.eat(b'<') {
                        let n = self.small("a register count")?;
                        self.expect(b'>')?;
                        Some(n)
                    } else {
                        None
                    };
                    out.push(Statement::Reg { ty, name, count, line });
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b';')
            }
            ".shared" | ".local" | ".global" | ".const" | ".param" => {
                out.extend(self.variables()?.into_iter().map(Statement::Var));
                Ok(())
            }
            ".pragma" => {
                while !self.eat(b';') {
                    if self.next().is_none() {
                        return self.fail("`.pragma` without an end");
                    }
                }
                Ok(())
            }
            ".loc" => {
                // Ends with its line.
                while self.at < self.tokens.len() && self.line() == line {
                    self.at += 1;
                }
                Ok(())
            }
            _ => self.fail(format!("unknown directive `{word}`")),
        }
    }

    fn instruction(&mut self) -> Result<Statement> {
        let guard = if self.eat(b'@') {
            let negated = self.eat(b'!');
            let name = self.word("a guard predicate")?;
            Some((Operand::Name(name.into()), negated))
        } else {
            None
        };
        let line = self.line();
        let opcode = self.word("an opcode")?.to_string();
        let mut operands = Vec::new();
        while !self.eat(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            operands.push(self.operand(0)?);
        }
        Ok(Statement::Inst(Instruction { line, guard, opcode, operands }))
    }

    fn operand(&mut self, depth: u32) -> Result<Operand> {
        if depth > 8 {
            return self.fail("operand nests too deep");
        }
        let first = match self.peek() {
            Some(Token::Punct(b'!')) => {
                self.at += 1;
                Operand::Not(Box::new(self.operand(depth + 1)?))
            }
            Some(Token::Punct(b'{')) => {
                self.at += 1;
                Operand::Vector(self.list(b'}', depth)?)
            }
            Some(Token::Punct(b'(')) => {
                self.at += 1;
                Operand::List(self.list(b')', depth)?)
            }
            Some(Token::Punct(b'[')) => {
                self.at += 1;
                let base = self.operand(depth + 1)?;
                let operand = match base {
                    Operand::Offset(base, offset) => Operand::Address(base, offset),
                    Operand::Int(address) => Operand::Address(Box::new(Operand::Int(address)), 0),
                    base => Operand::Address(Box::new(base), 0),
                };
                if self.is(b',') {
                    return self.fail("texture and tensor operands are not supported");
                }
                self.expect(b']')?;
                operand
            }
            Some(Token::Punct(b'-')) if matches!(self.tokens.get(self.at + 1), Some((Token::Word(_), _))) => {
                self.at += 1;
                Operand::Neg(Box::new(self.operand(depth + 1)?))
            }
            Some(Token::Word("_")) => {
                self.at += 1;
                Operand::Sink
            }
            Some(Token::Word(w)) => {
                self.at += 1;
                let name = Operand::Name(w.into());
                if self.is(b'+') || self.is(b'-') {
                    let negative = self.next() == Some(Token::Punct(b'-'));
                    let Operand::Int(n) = self.operand_number()? else {
                        return self.fail("expected an integer offset");
                    };
                    let n = n as i64;
                    Operand::Offset(Box::new(name), if negative { n.wrapping_neg() } else { n })
                } else {
                    name
                }
            }
            _ => self.operand_number()?,
        };
        if self.eat(b'|') {
            let second = self.operand(depth + 1)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn list(&mut self, end: u8, depth: u32) -> Result<Vec<Operand>> {
        let mut out = Vec::new();
        while !self.eat(end) {
            if !out.is_empty() {
                self.expect(b',')?;
            }
            out.push(self.operand(depth + 1)?);
        }
        Ok(out)
    }

    fn operand_number(&mut self) -> Result<Operand> {
        let negative = self.eat(b'-');
        let Some(Token::Number(text)) = self.peek() else {
            return self.fail(format!("expected an operand, found {}", describe(self.peek())));
        };
        let Some(value) = number(text) else { return self.fail(format!("bad number `{text}`")) };
        self.at += 1;
        Ok(match value {
            Operand::Int(n) if negative => Operand::Int(n.wrapping_neg()),
            Operand::F32(bits) if negative => Operand::F32(bits ^ 1 << 31),
            Operand::F64(bits) if negative => Operand::F64(bits ^ 1 << 63),
            value => value,
        })
    }
}

fn number(text: &str) -> Option<Operand> {
    let lower = text.to_ascii_lowercase();
    let digits = |prefix: &str| lower.strip_prefix(prefix);
    if let Some(hex) = digits("0f")
        && hex.len() == 8
    {
        return u32::from_str_radix(hex, 16).ok().map(Operand::F32);
    }
    if let Some(hex) = digits("0d")
        && hex.len() == 16
    {
        return u64::from_str_radix(hex, 16).ok().map(Operand::F64);
    }
    let integer = lower.strip_suffix('u').unwrap_or(&lower);
    let parsed = if let Some(hex) = integer.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = integer.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if integer.len() > 1 && integer.starts_with('0') && !integer.contains(['.', 'e']) {
        u64::from_str_radix(&integer[1..], 8)
    } else {
        integer.parse()
    };
    match parsed {
        Ok(n) => Some(Operand::Int(n)),
        Err(_) if lower.contains('.') => lower.parse::<f64>().ok().map(|value| Operand::F64(value.to_bits())),
        Err(_) => None,
    }
}

fn describe(token: Option<Token<'_>>) -> String {
    match token {
        Some(Token::Word(w) | Token::Number(w)) => format!("`{w}`"),
        Some(Token::Text(t)) => format!("\"{t}\""),
        Some(Token::Punct(c)) => format!("`{}`", c as char),
        None => "the end of the text".into(),
    }
}
