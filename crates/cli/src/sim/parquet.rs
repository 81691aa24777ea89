//! Records as a Parquet table: one row per run, one column per parameter, metric and counter.

use std::sync::Arc;

use anyhow::Context;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value as Json;

use super::record::Record;

/// A column with its values by row.
struct Column {
    name: String,
    cells: Vec<Option<Json>>,
    kind: Kind,
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Whole,
    Number,
    Text,
}

/// Encodes the table. The file's metadata has the columns' units as JSON, under the key `units`.
pub(super) fn table(records: &[Record]) -> anyhow::Result<Vec<u8>> {
    let columns = columns(records)?;
    let fields: Result<Vec<_>, _> = columns.iter().map(field).collect();
    let schema = Type::group_type_builder("runs").with_fields(fields?).build()?;
    let units: std::collections::BTreeMap<_, _> = records.iter().flat_map(|record| &record.units).collect();
    let units = KeyValue::new("units".to_owned(), serde_json::to_string(&units)?);
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![units])).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in &columns {
        let mut writer = group.next_column()?.context("a column of the table is missing")?;
        write(&mut writer, column)?;
        writer.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// Returns the columns in order of first occurrence.
fn columns(records: &[Record]) -> anyhow::Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for (row, record) in records.iter().enumerate() {
        for (name, value) in cells(record)? {
            let place = columns.iter().position(|column| column.name == name).unwrap_or(columns.len());
            if place == columns.len() {
                let kind = Kind::of(&value);
                columns.push(Column { name, cells: vec![None; records.len()], kind });
            }
            let column = &mut columns[place];
            column.kind = column.kind.with(Kind::of(&value));
            column.cells[row] = Some(value);
        }
    }
    Ok(columns)
}

/// Returns the fields of a record, with nested ones as `table.name`; without units.
fn cells(record: &Record) -> anyhow::Result<Vec<(String, Json)>> {
    let Json::Object(fields) = serde_json::to_value(record)? else { return Ok(Vec::new()) };
    let mut cells = Vec::new();
    for (name, value) in fields {
        match value {
            Json::Object(_) if name == "units" => {}
            Json::Object(table) => {
                cells.extend(table.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            value => cells.push((name, value)),
        }
    }
    Ok(cells)
}

impl Kind {
    fn of(value: &Json) -> Self {
        match value {
            Json::Bool(_) => Self::Flag,
            Json::Number(number) if number.is_u64() => Self::Whole,
            Json::Number(_) => Self::Number,
            _ => Self::Text,
        }
    }

    /// Returns the narrowest type for both.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Whole, Self::Number) | (Self::Number, Self::Whole) => Self::Number,
            _ => Self::Text,
        }
    }
}

fn field(column: &Column) -> Result<Arc<Type>, parquet::errors::ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Whole => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let builder = Type::primitive_type_builder(&column.name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?))
}

fn write(writer: &mut SerializedColumnWriter<'_>, column: &Column) -> anyhow::Result<()> {
    let present: Vec<i16> = column.cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let cells = column.cells.iter().flatten();
    let levels = Some(&present[..]);
    match column.kind {
        Kind::Flag => {
            let flags: Vec<bool> = cells.filter_map(Json::as_bool).collect();
            writer.typed::<BoolType>().write_batch(&flags, levels, None)?
        }
        Kind::Whole => {
            let numbers: Vec<i64> = cells.filter_map(Json::as_u64).map(u64::cast_signed).collect();
            writer.typed::<Int64Type>().write_batch(&numbers, levels, None)?
        }
        Kind::Number => {
            let numbers: Vec<f64> = cells.filter_map(Json::as_f64).collect();
            writer.typed::<DoubleType>().write_batch(&numbers, levels, None)?
        }
        Kind::Text => {
            let text = |cell: &Json| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
            let texts: Vec<ByteArray> = cells.map(|cell| ByteArray::from(text(cell).into_bytes())).collect();
            writer.typed::<ByteArrayType>().write_batch(&texts, levels, None)?
        }
    };
    Ok(())
}
