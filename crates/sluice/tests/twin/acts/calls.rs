//! FunctionCall: functions by their numbers in PostgreSQL's catalogue.

use sluice_testkit::Script;

use crate::generate::Maker;

const SET_CONFIG: u32 = 2078;
const ADVISORY_LOCK: u32 = 2880;
const ADVISORY_UNLOCK_ALL: u32 = 2892;
const INT4_PLUS: u32 = 177;
const INT4_DIVIDE: u32 = 154;
const TEXT_LENGTH: u32 = 1317;
const NO_FUNCTION: u32 = 15_999;

pub(crate) fn act(maker: &mut Maker) {
    let number = |number: u32| number.to_be_bytes();
    let call = match maker.random.below(8) {
        0 => Script::new().call(SET_CONFIG, &[b"TimeZone", b"Asia/Tokyo", b"\0"]),
        1 => Script::new().call(SET_CONFIG, &[b"work_mem", b"6MB", b"\0"]),
        2 => Script::new().call(ADVISORY_LOCK, &[&maker.client.to_be_bytes()]),
        3 => Script::new().call(ADVISORY_UNLOCK_ALL, &[]),
        4 => Script::new().call(INT4_PLUS, &[&number(2), &number(3)]),
        5 => Script::new().call(INT4_DIVIDE, &[&number(2), &number(0)]),
        6 => Script::new().call(TEXT_LENGTH, &["Grüße".as_bytes()]),
        _ => Script::new().call(NO_FUNCTION, &[]),
    };
    maker.say(call);
    let look = maker.one_of(&[
        "SHOW TimeZone",
        "SHOW work_mem",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ]);
    maker.sql(&look);
}
