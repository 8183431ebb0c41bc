//! Texts that anybody may send: one thing over and over. No reader calls itself for each, nor looks at all for each.

use std::thread;

use super::*;

/// The bytes of each text.
const TEXT_BYTES: usize = 64 << 10;

/// Far less than a worker has.
const STACK_BYTES: usize = 256 << 10;

const REPEATED: [&str; 60] = [
    "explain ",
    "explain (analyze) ",
    "explain analyze verbose ",
    "select ",
    "select (",
    "with a as (",
    "(",
    ")",
    "((a",
    "[",
    "prepare a as ",
    "create table t as ",
    "create table t as execute ",
    "create or replace ",
    "declare c cursor for ",
    "do $$",
    "do $a$ do $b$ ",
    "do 'do ''",
    "execute a(",
    "call a(",
    "set ",
    "set a = ",
    "set local ",
    "set session ",
    "reset ",
    "discard ",
    "begin ",
    "begin;",
    "begin atomic ",
    "case ",
    "case when a then ",
    "end ",
    "commit prepared ",
    "rollback to ",
    "copy a from ",
    "copy (",
    "grant a on ",
    "alter role a ",
    "set_config('a',$1,true),",
    "set_config(",
    "pg_settings ",
    "query_to_xml('select ",
    "query_to_xml($a$select ",
    "format('%I',",
    "a.",
    "\"a\".",
    "a::b",
    "$1,",
    "'a' ",
    "'a'\n",
    "e'\\'' ",
    "U&'a' ",
    "U&\"a\" uescape '!' ",
    "$a$",
    "/*",
    "/* */",
    "--\n",
    "\\",
    ";",
    "deallocate a;",
];

#[test]
fn one_thing_over_and_over_takes_neither_stack_nor_time() {
    for repeated in REPEATED {
        let text = repeated.as_bytes().repeat(TEXT_BYTES / repeated.len());
        let reading = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || read_by_all(&text));
        reading.unwrap().join().unwrap_or_else(|_| panic!("{repeated:?}"));
    }
}

/// Each reader of texts, as the engine calls them.
fn read_by_all(text: &[u8]) {
    let found = effects(text);
    let _effects = (effects_of_beginning(text), may_outlast_discard(found, text), may_outlast_rollback(found, text));
    let _commands =
        (command(text), begin(text), may_copy_in(text), may_follow(text), deallocated(text), databases(text));
    let _blocks = (Ending::of(text), ends_transaction(text), leads_to(text), has_several(text));
    let _customs = (CustomNames::of_text(text), CustomNames::of_sets(text), custom_set_alone(text), may_set_null(text));
    let _resets = (reset(text), resets_within(text), settings_named(text), users_set_by_code(text));
    let _shapes = (parameters(text), parameters_of_query(text), highest_written(text), returns_rows(text));
    let _others = (reads_literals(text), is_the_same_at_standby(text), statements_named(text), spelled_out(text));
    let _shown = (shown(text), without_constants(text, false));
}
