//! The extended protocol: statements by their names, portals, and what is answered to a batch.

use sluice_wire::message::{self, BindNames, Named, Parse, framed, frontend};

use crate::language::{has_rows, is_own};

use super::{
    Ends, Error, LITERALS_BY, Portal, Prepared, Session,
    answers::{put_copy_out, put_description, put_error, put_row},
    backend, failed, lossy, portal_of,
};

impl Session {
    pub(super) fn extended(&mut self, tag: u8, body: &[u8], ends: Ends, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(code @ ("57014" | "53S01" | "40001")) = ends.fail {
            if tag == frontend::PARSE && body[0] == 0 {
                self.names.remove(&b""[..]);
            }
            if tag == frontend::EXECUTE
                && let Some(portal) = self.portals.get(portal_of(body))
            {
                let text = portal.sql.clone();
                self.lose_block(code, &text);
            }
            if tag == frontend::DESCRIBE && ends.described {
                self.describe_parameters(body, out)?;
            }
            return Err(failed(code));
        }
        match tag {
            frontend::PARSE => {
                let parse = Parse::read(body).expect("simulated clients send whole Parse messages");
                if parse.name.is_empty() {
                    self.names.remove(&b""[..]);
                }
                let sql = String::from_utf8(parse.query.to_vec()).expect("simulated texts are UTF-8");
                if sql.starts_with("syntax") {
                    return Err(("42601", format!("syntax error at \"{sql}\"")));
                }
                self.may_run(&sql)?;
                if self.names.contains_key(parse.name) {
                    return Err(("42P05", format!("prepared statement \"{}\" already exists", lossy(parse.name))));
                }
                self.begin_transaction();
                let literal = self.value(LITERALS_BY).to_owned();
                let parameters = parameters(&parse);
                let (schema, parsed_in) = (ends.schema, self.transactions);
                let prepared = Prepared { sql, schema, literal, parameters, parsed_in };
                self.names.insert(parse.name.to_vec(), prepared);
                out.extend_from_slice(&message::PARSE_COMPLETE);
            }
            frontend::BIND => {
                let names = BindNames::read(body).expect("simulated clients send whole Bind messages");
                let prepared = self.find(names.statement)?.clone();
                let bound = &body[names.bytes..];
                check_count(names.statement, &prepared, bound)?;
                self.may_run(if prepared.sql.is_empty() { "nothing" } else { &prepared.sql })?;
                self.check(&prepared, ends)?;
                self.begin_transaction();
                let parameter = bound_parameter(bound);
                let portal = Portal { sql: prepared.sql, literal: prepared.literal, parameter, left: None };
                self.portals.insert(names.portal.to_vec(), portal);
                out.extend_from_slice(&message::BIND_COMPLETE);
            }
            frontend::DESCRIBE => self.describe(body, ends, out)?,
            frontend::EXECUTE => {
                let (_, limit) = message::split_cstr(body).expect("simulated clients send whole Execute messages");
                let limit = u32::from_be_bytes(limit.try_into().expect("a limit has four bytes"));
                self.execute(portal_of(body), limit, out)?;
            }
            _ => {
                match Named::read(body, "Close").expect("simulated clients send whole Close messages") {
                    Named::Statement(name) => drop(self.names.remove(name)),
                    Named::Portal(b"c") => self.close_cursor(),
                    Named::Portal(name) => drop(self.portals.remove(name)),
                }
                out.extend_from_slice(&message::CLOSE_COMPLETE);
            }
        }
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Result<&Prepared, Error> {
        self.names.get(name).ok_or_else(|| {
            let text = match name {
                b"" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{}\" does not exist", lossy(name)),
            };
            ("26000", text)
        })
    }

    fn describe(&mut self, body: &[u8], ends: Ends, out: &mut Vec<u8>) -> Result<(), Error> {
        let Ok(named) = Named::read(body, "Describe") else {
            return Err(("08P01", "invalid DESCRIBE message subtype".into()));
        };
        let sql = match (self.describe_parameters(body, out)?, named) {
            (Some(prepared), _) => {
                // PostgreSQL describes the parameters before it looks whether the result has changed.
                self.check(&prepared, ends)?;
                prepared.sql
            }
            (None, Named::Statement(name) | Named::Portal(name)) => match self.portals.get(name) {
                Some(portal) => portal.sql.clone(),
                None => return Err(("34000", "portal \"\" does not exist".into())),
            },
        };
        if has_rows(&sql) {
            put_description(out)
        } else {
            out.extend_from_slice(&message::NO_DATA)
        }
        Ok(())
    }

    /// Describes the parameters of the statement that a Describe is of, if it is of one.
    fn describe_parameters(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Option<Prepared>, Error> {
        let Ok(Named::Statement(name)) = Named::read(body, "Describe") else { return Ok(None) };
        let prepared = self.find(name)?.clone();
        if has_rows(&prepared.sql) {
            self.may_run(&prepared.sql)?;
        }
        let parameters: &[u8] = if prepared.sql.contains("$1") { &[0, 1, 0, 0, 0, 25] } else { &[0, 0] };
        framed(out, backend::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(parameters));
        Ok(Some(prepared))
    }

    /// Whether a statement can be used.
    fn check(&self, prepared: &Prepared, ends: Ends) -> Result<(), Error> {
        if let Some(code) = ends.fail {
            return Err(failed(code));
        }
        // A Parse locks its tables up to the transaction's end.
        let is_locked = self.undo.is_some() && prepared.parsed_in == self.transactions;
        // The pool asks for nothing that is in tables of users.
        let is_of_tables = has_rows(&prepared.sql) && !is_own(&prepared.sql);
        let is_stale = prepared.schema != ends.schema && is_of_tables && !is_locked;
        if is_stale { Err(failed("0A000")) } else { Ok(()) }
    }

    fn execute(&mut self, name: &[u8], limit: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(mut portal) = self.portals.remove(name) else {
            return Err(("34000", "portal \"\" does not exist".into()));
        };
        self.may_run(&portal.sql)?;
        let (mut rows, tag) = match portal.left.take() {
            Some(left) => left,
            None => {
                let outcome = self.run(&portal.sql, portal.parameter.as_deref(), &portal.literal, false)?;
                if outcome.copy_in {
                    self.begin_copy(true, out);
                    return self.go_on_copying(&outcome, &portal.sql);
                }
                if outcome.copy_out {
                    put_copy_out(out, outcome.rows.unwrap_or_default());
                    message::put_command_complete(out, &outcome.tag);
                    return Ok(());
                }
                if outcome.notice {
                    let text = "there is no transaction in progress";
                    put_error(out, backend::NOTICE_RESPONSE, "WARNING", "25P01", text);
                }
                (outcome.rows.unwrap_or_default(), outcome.tag)
            }
        };
        let now = if limit == 0 { rows.len() } else { rows.len().min(limit as usize) };
        rows.drain(..now).for_each(|row| put_row(out, &row));
        if rows.is_empty() {
            message::put_command_complete(out, &tag);
            if has_rows(&portal.sql) {
                // It may be executed again, and is at its end.
                portal.left = Some((rows, "SELECT 0".into()));
                self.portals.insert(name.to_vec(), portal);
            }
        } else {
            framed(out, backend::PORTAL_SUSPENDED, |_| {});
            portal.left = Some((rows, tag));
            self.portals.insert(name.to_vec(), portal);
        }
        Ok(())
    }
}

/// The number of a statement's parameters. One that says nothing has those that it is told of.
fn parameters(parse: &Parse<'_>) -> u16 {
    let types = &parse.definition[parse.query.len() + 1..];
    match parse.query {
        b"" => u16::from_be_bytes([types[0], types[1]]),
        query => u16::from(query.windows(2).any(|window| window == b"$1")),
    }
}

/// PostgreSQL counts the parameters that a Bind brings before it looks at anything else of the statement.
fn check_count(name: &[u8], prepared: &Prepared, rest: &[u8]) -> Result<(), Error> {
    let (count, needed) = (u16::from_be_bytes([rest[2], rest[3]]), prepared.parameters);
    if count == needed {
        return Ok(());
    }
    let name = lossy(name);
    let text = format!("bind message supplies {count} parameters, but prepared statement \"{name}\" requires {needed}");
    Err(("08P01", text))
}

fn bound_parameter(rest: &[u8]) -> Option<String> {
    // No formats, at most one parameter: that is all the simulated clients send.
    let count = u16::from_be_bytes([rest[2], rest[3]]);
    (count == 1).then(|| {
        let length = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        lossy(&rest[8..8 + length])
    })
}
