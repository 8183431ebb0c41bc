//! Code in literals and parameters, which a `DO` or a function runs: what its SETs make and give up is seen without the
//! extension too, each in one of the very many ways to write it.
//!
//! `SLUICE_TWIN_SPELLINGS=5000` has so many of them, and `SLUICE_TWIN_SEED=7` begins with that one.

use sluice_testkit::{Case, Random, Script, matrix};

use crate::{
    beside::{Beside, beside_with, s},
    number,
};

matrix!(transaction:
    custom_settings_that_code_names_in_any_spelling,
    roles_that_code_gives_up_in_any_spelling,
    what_code_was_found_to_hide,
    code_in_words_of_every_day_keeps_no_server,
);

/// As many for each case, unless the environment says otherwise.
const SPELLINGS: u64 = 60;

const FUNCTIONS: &str = "CREATE FUNCTION runs(text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE $1; END'; \
    CREATE FUNCTION sets(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN set_config($1, $2, false); END'";

const WHO: &str = "SELECT current_user, session_user, current_setting('role')";

fn seeds() -> std::ops::Range<u64> {
    let first = number("SLUICE_TWIN_SEED").unwrap_or(0);
    first..first + number("SLUICE_TWIN_SPELLINGS").unwrap_or(SPELLINGS)
}

/// Nobody but the first client has made such a setting, and that one has it wherever it goes.
fn makes(b: &mut Beside, script: &Script, name: &str) {
    let asks = format!("SELECT current_setting('{name}', true)");
    b.clients(&[&[], &[], &[]]);
    b.says(0, script);
    b.query(1, &asks);
    // There is one server for both others, or two.
    b.query(2, "BEGIN READ WRITE");
    b.query(0, &asks);
    b.query(2, "COMMIT");
    for client in [1, 0, 2] {
        b.query(client, &asks);
    }
}

fn custom_settings_that_code_names_in_any_spelling(case: Case) {
    beside_with(case, false, &[&[]], |b| {
        b.query(0, FUNCTIONS);
        for seed in seeds() {
            let mut writer = Writer(Random::new(seed));
            let command = writer.command(seed);
            let (text, value) = writer.runs(command, true);
            eprintln!("seed {seed}: {text} {value:?}");
            let script = match &value {
                Some(value) => s().unnamed(&text, &[Some(value)]).sync(),
                None if writer.0.percent(40) => s().unnamed(&text, &[]).sync(),
                None => s().query(&text),
            };
            makes(b, &script, &format!("k{seed}.n"));
        }
    });
}

fn roles_that_code_gives_up_in_any_spelling(case: Case) {
    beside_with(case, false, &[&[]], |b| {
        b.query(0, FUNCTIONS);
        for seed in seeds() {
            let mut writer = Writer(Random::new(seed));
            let command = *writer.0.of(&[
                "SET ROLE NONE",
                "SET SESSION ROLE 'none'",
                "SET role = 'none'",
                "SET \"role\" TO none",
                "SET SESSION AUTHORIZATION app",
                "SET session_authorization = 'app'",
                "RESET ROLE",
                "SET ROLE TO DEFAULT",
                "SET SESSION AUTHORIZATION DEFAULT",
                "SET LOCAL ROLE NONE",
            ]);
            // Nobody can tell what `'SET ROLE TO DEF' || v` comes to.
            let (text, value) = writer.runs(command.to_owned(), !command.ends_with("DEFAULT"));
            eprintln!("seed {seed}: {text} {value:?}");
            let script = match &value {
                Some(value) => s().unnamed(&text, &[Some(value)]).sync(),
                None => s().query(&text),
            };
            gives_up(b, &script);
        }
    });
}

/// A client that began with a role works as whom it says, wherever it goes.
fn gives_up(b: &mut Beside, script: &Script) {
    b.clients(&[&[("options", "-c role=trusted")], &[], &[]]);
    b.query(0, WHO);
    b.says(0, script);
    b.query(0, WHO);
    b.query(1, WHO);
    b.query(2, "BEGIN READ WRITE");
    b.query(0, WHO);
    b.query(2, "COMMIT");
    b.query(0, WHO);
}

fn what_code_was_found_to_hide(case: Case) {
    beside_with(case, false, &[&[]], |b| {
        b.query(0, FUNCTIONS);
        for (number, text) in [
            "DO $q$ BEGIN SET \"k§\".\"n\" = 'secret'; END $q$",
            "DO $q$ BEGIN SET k§ . n = 'secret'; END $q$",
            "DO E'BEGIN SET k§\\056n = 1; END'",
            "DO U&'BEGIN SET k§\\002en = 1; END'",
            "DO 'BEGIN SET k§'\n'.n = 1; END'",
            "SELECT runs('SET \"k§\".n=1')",
            "DO $$ BEGIN EXECUTE format('SET %I.%I=1', 'k§', 'n'); END $$",
            "DO $$ BEGIN EXECUTE 'SET k' || '§.n=1'; END $$",
            "DO $$ DECLARE v text := 'k§.' || 'n'; BEGIN EXECUTE concat('SET ', v, '=1'); END $$",
            "DO E'BEGIN PERFORM set\\137config(''k§'' || ''.n'', ''1'', false); END'",
            "SELECT runs('SELECT set_config(''k§''||''.n'', ''1'', false)')",
            "SELECT runs(replace('SET \"x§\".n=1', 'x', 'k'))",
            "CREATE FUNCTION t() RETURNS int LANGUAGE plpgsql SET \"k§\".\"n\" = 'v' AS 'BEGIN RETURN 1; END'; \
             SELECT t(); DROP FUNCTION t()",
        ]
        .iter()
        .enumerate()
        {
            let number = format!("z{number}");
            makes(b, &s().query(&text.replace('§', &number)), &format!("k{number}.n"));
        }
        for text in [
            "DO $$ BEGIN SET ROLE \"none\"; END $$",
            "DO $$ BEGIN SET SESSION AUTHORIZATION 'app'; END $$",
            "DO $$ BEGIN PERFORM set_config('role', 'none', false); END $$",
            "DO $$ BEGIN EXECUTE 'SET ROLE ' || 'NONE'; END $$",
            "SELECT sets('role', 'none')",
            "SELECT runs('SET role=''none''')",
            "SET SESSION AUTHORIZATION app; RESET ALL",
            "DO $$ BEGIN SET SESSION AUTHORIZATION app; RESET ALL; END $$",
            "UPDATE pg_settings SET setting = 'none' WHERE name = 'role'",
        ] {
            gives_up(b, &s().query(text));
        }
        gives_up(b, &s().unnamed("SELECT sets($1, $2)", &[Some("role"), Some("none")]).sync());
        gives_up(b, &s().unnamed("SELECT runs($1)", &[Some("SET ROLE NONE")]).sync());
    });
}

/// Three clients have two servers in turn, and none keeps one for itself.
fn code_in_words_of_every_day_keeps_no_server(case: Case) {
    beside_with(case, false, &[&[], &[], &[]], |b| {
        b.query(0, "CREATE FUNCTION tells(text) RETURNS text LANGUAGE sql AS 'SELECT $1'");
        for text in [
            "SELECT tells('Set password'), tells('it''s set'), tells('Reset password for ' || 'x')",
            "DO $$ BEGIN PERFORM 'x' || 'y'; SET work_mem = '5MB'; RAISE NOTICE 'Set % to %', 1, 2; END $$",
            "SELECT tells('UPDATE t SET a = 1 || b'), tells(E'C:\\\\settings')",
        ] {
            for client in [0, 1, 2, 0, 1, 2] {
                b.query(client, text);
            }
        }
        for client in 0..3 {
            b.says(client, &s().unnamed("SELECT tells($1)", &[Some("{\"set\": \"Set up\"}")]).sync());
        }
    });
}

struct Writer(Random);

impl Writer {
    /// A command that makes `k§.n`, with a number in its name that nobody has heard of before.
    fn command(&mut self, number: u64) -> String {
        let prefix = match self.0.below(4) {
            0 => format!("\"k{number}\""),
            1 => format!("K{number}"),
            2 => format!("U&\"\\006b{number}\""),
            _ => format!("k{number}"),
        };
        let [before, behind] = [(); 2].map(|()| *self.0.of(&["", "", " ", "/* . */", "\n", " -- so\n", "\t"]));
        let name = *self.0.of(&["n", "\"n\"", "N", "U&\"\\006e\""]);
        let verb = *self.0.of(&["SET", "set", "SET SESSION", "SET LOCAL", "Set /* so */", "RESET"]);
        let value = match verb {
            "RESET" => "",
            _ => *self.0.of(&["= 1", "TO 'v'", "='v'", "TO $x$a.b$x$"]),
        };
        format!("{verb} {prefix}{before}.{behind}{name} {value}")
    }

    /// A text that runs a command, and its parameter, if it has one; it may put the command together.
    fn runs(&mut self, command: String, joins: bool) -> (String, Option<String>) {
        match self.0.below(8) {
            0 => ("SELECT runs($1)".to_owned(), Some(command)),
            1 => (format!("SELECT runs({})", self.literal(&command)), None),
            2 => {
                let code = format!("BEGIN EXECUTE {}; END", self.literal(&command));
                (format!("DO {}", self.literal(&code)), None)
            }
            3 => {
                let inner = format!("BEGIN {command}; END");
                let code = format!("BEGIN EXECUTE 'DO ' || {}; END", self.literal(&format!("$i$ {inner} $i$")));
                (format!("DO {}", self.literal(&code)), None)
            }
            // Put together, behind the verb.
            4 if joins => {
                let verb = command.find(' ').unwrap_or_default();
                let at = self.place(&command, verb);
                let (first, second) = (self.literal(&command[..at]), self.literal(&command[at..]));
                (format!("DO {}", self.literal(&format!("BEGIN EXECUTE {first} || {second}; END"))), None)
            }
            _ => {
                let before = *self.0.of(&["", "NULL; ", "IF true THEN ", "LOOP "]);
                let behind = match before {
                    "IF true THEN " => "; END IF",
                    "LOOP " => "; EXIT; END LOOP",
                    _ => "",
                };
                let code = format!("BEGIN {before}{command}{behind}; END");
                let language = *self.0.of(&["", "LANGUAGE plpgsql "]);
                (format!("DO {language}{}", self.literal(&code)), None)
            }
        }
    }

    /// A place in a text, not before that one.
    fn place(&mut self, text: &str, first: usize) -> usize {
        first + self.0.below(text.len() - first)
    }

    /// A literal of that value, in some form.
    fn literal(&mut self, value: &str) -> String {
        let quoted = |value: &str| value.replace('\'', "''");
        match self.0.below(5) {
            0 => {
                let tag = (0..).map(|n| format!("$t{n}$")).find(|tag| !value.contains(tag)).unwrap();
                format!("{tag}{value}{tag}")
            }
            1 => format!("E'{}'", self.escaped(value)),
            2 => {
                let escaped = value.chars().map(|letter| match self.0.percent(15) {
                    true => format!("\\{:04x}", u32::from(letter)),
                    false => letter.to_string().replace('\\', "\\\\"),
                });
                format!("U&'{}'", quoted(&escaped.collect::<String>()))
            }
            3 => {
                let at = self.place(value, 0);
                let between = *self.0.of(&["\n", " \n\t", " -- so\n"]);
                format!("'{}'{between}'{}'", quoted(&value[..at]), quoted(&value[at..]))
            }
            _ => format!("'{}'", quoted(value)),
        }
    }

    fn escaped(&mut self, value: &str) -> String {
        let escaped = value.chars().map(|letter| {
            let code = u32::from(letter);
            match self.0.below(20) {
                0 => format!("\\{code:03o}"),
                1 => format!("\\x{code:02x}"),
                2 => format!("\\u{code:04x}"),
                3 => format!("\\U{code:08x}"),
                _ => match letter {
                    '\'' => "\\'".to_owned(),
                    '\\' => "\\\\".to_owned(),
                    letter => letter.to_string(),
                },
            }
        });
        escaped.collect()
    }
}
