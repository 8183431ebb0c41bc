//! `scenario.toml` as it is written, and how it becomes a checked scenario.

use std::{collections::BTreeMap, fs, path::PathBuf, str::FromStr};

use serde::Deserialize;
use sluice_instance::{Class, LimitError};

use super::{Brief, Data, FILE, Flood, Load, Maker, Protocol, Scenario, Script, Size, Variant};
use crate::error::Error;

/// `scenario.toml` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    title: String,
    description: String,
    reference: Option<String>,
    data: WrittenData,
    load: Load,
    #[serde(default)]
    class: WrittenClass,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    variant: Vec<WrittenVariant>,
    targets: Vec<String>,
    #[serde(default = "one")]
    turns: u32,
    #[serde(default)]
    interleaved: bool,
    brief: Brief,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenData {
    schema: Option<String>,
    rows: Option<u64>,
    percent_of_shared_buffers: Option<f64>,
    bytes_per_row: Option<u64>,
    #[serde(default)]
    prewarm: Vec<String>,
    #[serde(default)]
    reset: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClass {
    memory: Option<String>,
    cpus: Option<String>,
    iops: Option<String>,
    connections: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenVariant {
    name: String,
    scripts: Vec<WrittenScript>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    unlogged: bool,
    flood: Option<Flood>,
    clients: Option<Vec<u32>>,
    protocol: Option<Protocol>,
    targets: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenScript {
    file: Option<String>,
    builtin: Option<String>,
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

/// The source of a scenario's files.
pub(super) enum Source {
    Shipped(&'static [(&'static str, &'static str)]),
    Folder(PathBuf),
}

impl Source {
    fn text(&self, file: &str) -> Result<String, Error> {
        match self {
            Self::Shipped(files) => {
                let text = files.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned());
                text.ok_or_else(|| Error::Input(format!("the scenario has no file {file}")))
            }
            Self::Folder(folder) => {
                let path = folder.join(file);
                fs::read_to_string(&path).map_err(Error::file("read", &path))
            }
        }
    }
}

/// Reads a scenario of that name, whose files are in `source`.
pub(super) fn read(name: &str, source: &Source) -> Result<Scenario, Error> {
    let text = source.text(FILE)?;
    let written: Written = toml::from_str(&text).map_err(|error| Error::Input(format!("{name}/{FILE}: {error}")))?;
    let wrong = |what: String| Error::Input(format!("{name}/{FILE}: {what}"));
    let variants = written.variant.into_iter().map(|variant| read_variant(variant, source, &wrong));
    let scenario = Scenario {
        name: name.to_owned(),
        title: written.title,
        description: written.description.trim().to_owned(),
        reference: written.reference,
        data: read_data(written.data, source, &wrong)?,
        load: written.load,
        class: read_class(&written.class).map_err(&wrong)?,
        settings: written.settings,
        variants: variants.collect::<Result<_, _>>()?,
        targets: written.targets,
        turns: written.turns,
        interleaved: written.interleaved,
        brief: written.brief,
    };
    scenario.check().map_err(wrong)?;
    Ok(scenario)
}

fn read_class(class: &WrittenClass) -> Result<Class, String> {
    fn read<T: FromStr<Err = LimitError>>(name: &str, text: Option<&str>) -> Result<Option<T>, String> {
        text.map(str::parse).transpose().map_err(|error| format!("class: {name}: {error}"))
    }
    Ok(Class {
        memory: read("memory", class.memory.as_deref())?,
        cpus: read("cpus", class.cpus.as_deref())?,
        iops: read("iops", class.iops.as_deref())?,
        connections: read("connections", class.connections.as_deref())?,
    })
}

fn read_data(data: WrittenData, source: &Source, wrong: &impl Fn(String) -> Error) -> Result<Data, Error> {
    let size = match (data.rows, data.percent_of_shared_buffers, data.bytes_per_row) {
        (Some(rows), None, None) if rows > 0 => Size::Rows(rows),
        (None, Some(percent), Some(bytes_per_row)) if percent > 0.0 && bytes_per_row > 0 => {
            Size::PercentOfSharedBuffers { percent, bytes_per_row }
        }
        _ => {
            let wanted = "data: either rows, or percent_of_shared_buffers with bytes_per_row, each above 0";
            return Err(wrong(wanted.to_owned()));
        }
    };
    let maker = match data.schema {
        Some(file) => Maker::Schema(source.text(&file)?),
        None => Maker::Pgbench,
    };
    Ok(Data { maker, size, prewarm: data.prewarm, reset: data.reset })
}

fn read_variant(variant: WrittenVariant, source: &Source, wrong: &impl Fn(String) -> Error) -> Result<Variant, Error> {
    let scripts = variant.scripts.into_iter().map(|script| match (script.file, script.builtin) {
        (Some(file), None) => {
            let text = source.text(&file)?;
            Ok(Script { name: file, text: Some(text), weight: script.weight })
        }
        (None, Some(builtin)) => Ok(Script { name: builtin, text: None, weight: script.weight }),
        _ => Err(wrong(format!("variant {:?}: a script has either a file or a builtin", variant.name))),
    });
    Ok(Variant {
        scripts: scripts.collect::<Result<_, _>>()?,
        name: variant.name,
        settings: variant.settings,
        unlogged: variant.unlogged,
        flood: variant.flood,
        clients: variant.clients,
        protocol: variant.protocol,
        targets: variant.targets,
    })
}
