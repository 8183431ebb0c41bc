//! The same files, as PostgreSQL's views show them and as Sluice reads them.

use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use sluice_hba::{Address, Fault, Problem, Rule};
use sluice_testkit::{Random, Version};

use crate::{
    generate::{self, Kind},
    place::Place,
};

/// Time for random files, in each of the two tests.
const TIME: Duration = Duration::from_secs(5);

const RULES: &str = "SELECT file_name, line_number, error, type, array_to_string(database, chr(1)), \
                     array_to_string(user_name, chr(1)), address, netmask, auth_method, \
                     array_to_string(options, chr(1)) FROM pg_hba_file_rules";

/// The same for PostgreSQL 15, which has one file.
const OLD_RULES: &str = "SELECT current_setting('hba_file'), line_number, error, type, \
                         array_to_string(database, chr(1)), array_to_string(user_name, chr(1)), address, netmask, \
                         auth_method, array_to_string(options, chr(1)) FROM pg_hba_file_rules";

const MAPS: &str = "SELECT file_name, line_number, error, map_name FROM pg_ident_file_mappings";

/// Differences that are meant, all of them: PostgreSQL's line, and the problem that Sluice has with it.
fn is_meant(line: &Line, problem: &Problem) -> bool {
    let is_right = line.error.is_none();
    let is_pattern = problem.what.contains("regular expressions, as in");
    let is_method = problem.what.ends_with(" authentication");
    let is_name = problem.what.starts_with("Sluice asks no DNS");
    let is_dn = problem.what.starts_with("Sluice does not compare distinguished names");
    // A missing method may have mistakes in its options, which Sluice does not look at; nor does it know whether an
    // expression is right that it can't read.
    problem.fault == Fault::Sluice && (is_method || is_pattern || (is_right && (is_name || is_dn)))
}

/// A line of one of the views.
#[derive(Debug, PartialEq)]
struct Line {
    file: PathBuf,
    number: usize,
    error: Option<String>,
    columns: Vec<String>,
}

impl Line {
    fn of_postgresql(row: Vec<Option<String>>) -> Self {
        let mut columns = row.into_iter();
        let file = columns.next().flatten().unwrap().into();
        let number = columns.next().flatten().unwrap().parse().unwrap();
        // That build has neither TLS nor GSSAPI; such a line is right otherwise.
        let error = columns.next().flatten();
        let error = error.filter(|error| !error.contains(" record cannot match because "));
        let mut columns: Vec<_> = columns.map(Option::unwrap_or_default).collect();
        if let Some(options) = columns.last_mut() {
            // A map without a name is none.
            *options = options.split('\x01').filter(|option| *option != "map=").collect::<Vec<_>>().join("\x01");
        }
        for column in columns.iter_mut().skip(3).take(2) {
            // `::ffff:1.2.3.4` and the like are written in more than one way, and zones do not count.
            let address = column.split('%').next().unwrap().parse::<IpAddr>();
            *column = address.map_or(column.clone(), |address| address.to_string());
        }
        let is_refused = columns.len() > 1 && columns.iter().all(String::is_empty);
        let error = error.or_else(|| is_refused.then(String::new));
        Self { file, number, error, columns }
    }

    fn of_rule(rule: &Rule) -> Self {
        let (address, mask) = match rule.address() {
            None => (String::new(), String::new()),
            Some(Address::All) => ("all".into(), String::new()),
            Some(Address::SameHost) => ("samehost".into(), String::new()),
            Some(Address::SameNet) => ("samenet".into(), String::new()),
            Some(Address::Range { address, mask }) => (address.to_string(), mask.to_string()),
        };
        let map = rule.map().map(|map| format!("map={map}"));
        let cert = rule.client_cert().name().map(|cert| format!("clientcert={cert}"));
        let columns = vec![
            rule.connection_type().name().to_owned(),
            rule.databases().collect::<Vec<_>>().join("\x01"),
            rule.users().collect::<Vec<_>>().join("\x01"),
            address,
            mask,
            rule.method().name().to_owned(),
            map.into_iter().chain(cert).collect::<Vec<_>>().join("\x01"),
        ];
        Self { file: rule.place().file.clone(), number: rule.place().line, error: None, columns }
    }
}

/// The counts of a test.
#[derive(Debug, Default)]
struct Counts {
    files: usize,
    right: usize,
    wrong: usize,
    /// Of those, the ones for which both have the same words.
    worded: usize,
    meant: usize,
}

/// Compares the problems of one of the two files with the lines that PostgreSQL has no use for. The words for a mistake
/// are Sluice's own where a line has several, or PostgreSQL's versions differ.
fn compare_problems(lines: &[Line], problems: &[Problem], version: Version, counts: &mut Counts) {
    let mut rest: Vec<_> = problems.iter().filter(|problem| !problem.what.ends_with("contains no entries")).collect();
    for line in lines {
        let place = rest.iter().position(|problem| problem.file == line.file && problem.line == line.number);
        match (&line.error, place.map(|place| rest.remove(place))) {
            (_, Some(problem)) if is_meant(line, problem) => counts.meant += 1,
            // PostgreSQL 15 has no expressions.
            (None, Some(problem)) if version == Version::V15 && problem.what.contains("regular expression") => {
                counts.meant += 1;
            }
            (Some(error), Some(problem)) => {
                counts.wrong += 1;
                counts.worded += usize::from(*error == problem.what);
            }
            (None, None) => (),
            (_, problem) => panic!("PostgreSQL: {line:?}\nSluice: {problem:?}"),
        }
    }
    // Lines that PostgreSQL's view of maps passes over: expressions that Sluice can't read, and folders read as files.
    rest.retain(|problem| problem.fault != Fault::Sluice && !problem.what.ends_with("Is a directory"));
    assert!(rest.is_empty(), "{rest:#?}");
}

/// Compares both files as they are now. Gives the lines that Sluice has a problem with.
fn compare(place: &mut Place, counts: &mut Counts) -> Vec<(PathBuf, usize)> {
    let is_old = place.server.version() == Version::V15;
    let of_view = |rows: Vec<_>| rows.into_iter().map(Line::of_postgresql).collect::<Vec<_>>();
    let rules = of_view(place.rows(if is_old { OLD_RULES } else { RULES }));
    let maps = if is_old { Vec::new() } else { of_view(place.rows(MAPS)) };
    counts.files += 1;
    let problems = match place.read() {
        Ok(read) => {
            let ours: Vec<_> = read.rules().iter().map(Line::of_rule).collect();
            assert_eq!(rules, ours);
            assert!(maps.iter().all(|line| line.error.is_none() && read.has_map(&line.columns[0])), "{maps:#?}");
            counts.right += ours.len() + maps.len();
            return Vec::new();
        }
        Err(problems) => problems,
    };
    let all: Vec<_> = rules.into_iter().chain(maps).collect();
    compare_problems(&all, &problems, place.server.version(), counts);
    let with_line = problems.into_iter().filter(|problem| !problem.what.ends_with("contains no entries"));
    with_line.map(|problem| (problem.file, problem.line)).collect()
}

/// Random files by their paths, those of PostgreSQL first.
type Files = Vec<(PathBuf, generate::Entries)>;

fn write(files: &Files) {
    for (path, entries) in files {
        fs::write(path, entries.join("\n")).unwrap();
    }
}

fn shown(files: &Files) -> String {
    files.iter().map(|(path, entries)| format!("== {}\n{}\n", path.display(), entries.join("\n"))).collect()
}

/// Empties the lines that have problems. True if there were any.
fn without(files: &mut Files, problems: &[(PathBuf, usize)]) -> bool {
    let mut has_any = false;
    for (path, entries) in files {
        let text = entries.join("\n");
        let mut lines: Vec<_> = text.split('\n').map(str::to_owned).collect();
        for (_, number) in problems.iter().filter(|(file, _)| file == path) {
            has_any = true;
            let mut at = number - 1;
            while std::mem::take(&mut lines[at]).trim_end_matches('\r').ends_with('\\') && at + 1 < lines.len() {
                at += 1;
            }
        }
        *entries = lines;
    }
    has_any
}

fn random_files(place: &Place, random: &mut Random, kind: Kind) -> Files {
    let folder = place.folder();
    let main = if kind == Kind::Maps { &place.ident } else { &place.hba };
    let mut files = vec![(main.clone(), generate::entries(random, kind, 25, 0))];
    for (name, level) in [("inc0.conf", 1), ("inc1.conf", 2), ("inc2.conf", 2), ("more/b.conf", 2), ("more/B.conf", 2)]
    {
        files.push((folder.join(name), generate::entries(random, kind, 3, level)));
    }
    files.push((folder.join("names"), vec![generate::names(random, kind)]));
    files.push((folder.join("more/names"), vec![generate::names(random, kind)]));
    files
}

fn compare_random(version: Version, kind: Kind) {
    let mut place = Place::start(version);
    let more = place.folder().join("more");
    fs::create_dir(&more).unwrap();
    fs::create_dir(more.join("folder.conf")).unwrap();
    for name in [".hidden.conf", ".conf", "other.txt", "b.conf~"] {
        fs::write(more.join(name), "nonsense\n").unwrap();
    }
    let other = if kind == Kind::Maps { &place.hba } else { &place.ident };
    fs::write(other, "local all all reject\n").unwrap();
    let time = std::env::var("SLUICE_HBA_SECONDS").map_or(TIME, |time| Duration::from_secs(time.parse().unwrap()));
    let mut counts = Counts::default();
    let begin = Instant::now();
    let mut seed = 0;
    while begin.elapsed() < time {
        let mut files = random_files(&place, &mut Random::new(seed), kind);
        for _ in 0..10 {
            write(&files);
            let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| compare(&mut place, &mut counts)));
            let problems = compared.unwrap_or_else(|_| panic!("seed {seed}:\n{}", shown(&files)));
            if !without(&mut files, &problems) {
                break;
            }
        }
        seed += 1;
    }
    println!("{version}, {kind:?}: {seed} seeds, {counts:?}");
    assert!(counts.right > 100 && counts.wrong > 100 && counts.meant > 10, "{counts:?}");
}

#[test]
fn random_rules() {
    compare_random(Version::V18, Kind::Rules);
}

#[test]
fn random_rules_with_cert() {
    compare_random(Version::V15, Kind::OldRules);
}

#[test]
fn random_maps() {
    compare_random(Version::V18, Kind::Maps);
}

/// Files of rules, one a paragraph, each with all that may be odd about it.
const ODD: [&str; 11] = [
    "",
    "# nothing\n\n",
    "include pg_hba.conf\nlocal all all trust\n",
    "include loop.conf\n",
    "include_if_exists loop.conf\nlocal @loop.conf all trust\n",
    "include deep1.conf\nlocal all all reject",
    "local all @deep1.conf trust\nlocal all @deep2.conf trust\n",
    "local all all trust \\",
    "local all all trust \\\\\n\nlocal all \\\n\\\n# x\nlocal all all md5",
    "local all all\\\r\n trust\r\r\nhost all all 10.0.0.0/8 \\\n  md5\nnonsense",
    "local all all peer clientcert=verify-full\nhost all all all peer\nlocal all all ident map=m\n\
     local all all md5 issuer=i",
];

#[test]
fn odd_files() {
    let mut place = Place::start(Version::V18);
    let mut counts = Counts::default();
    fs::write(place.folder().join("loop.conf"), "include loop.conf\n").unwrap();
    for depth in 1..=12 {
        let text =
            if depth == 12 { "local all all trust\n".into() } else { format!("include deep{}.conf\n", depth + 1) };
        fs::write(place.folder().join(format!("deep{depth}.conf")), text).unwrap();
    }
    for text in ODD {
        fs::write(&place.hba, text).unwrap();
        compare(&mut place, &mut counts);
    }
    assert_eq!(counts.files, ODD.len());
}
