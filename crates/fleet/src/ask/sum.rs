//! `sum` of whole numbers that reports an overflow. DataFusion's own `sum` wraps around, so that a host with large
//! false values makes the sum of all hosts small or negative.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};

/// The function, under the name of DataFusion's own, which it replaces. DataFusion's sums the types other than Int64.
pub fn checked_sum() -> AggregateUDF {
    AggregateUDF::new_from_impl(CheckedSum { other_types: Sum::new() })
}

fn overflow() -> DataFusionError {
    let why = "a sum is larger than 9223372036854775807: either a host pushed impossible values (`SELECT host, \
               max(stall_ns) FROM summary GROUP BY host ORDER BY 2 DESC` names it), or the range is too long: give a \
               shorter one";
    ArrowError::ArithmeticOverflow(why.to_owned()).into()
}

fn plus(sum: i64, more: i64) -> Result<i64> {
    sum.checked_add(more).ok_or_else(overflow)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    other_types: Sum,
}

fn is_checked(args: &AccumulatorArgs<'_>) -> Result<bool> {
    let is_whole = *args.return_field.data_type() == DataType::Int64;
    if is_whole && args.is_distinct {
        let why = "sum(DISTINCT x) of whole numbers: give SELECT sum(x) FROM (SELECT DISTINCT x FROM ...)";
        return Err(DataFusionError::NotImplemented(why.to_owned()));
    }
    Ok(is_whole)
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.other_types.name()
    }

    fn signature(&self) -> &Signature {
        self.other_types.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.other_types.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_checked(&args)? { Ok(Box::new(SingleSum::default())) } else { self.other_types.accumulator(args) }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.other_types.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.other_types.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        if is_checked(&args)? {
            Ok(Box::new(GroupSums::default()))
        } else {
            self.other_types.create_groups_accumulator(args)
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_checked(&args)? {
            Ok(Box::new(SingleSum::default()))
        } else {
            self.other_types.create_sliding_accumulator(args)
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.other_types.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.other_types.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.other_types.set_monotonicity(data_type)
    }
}

/// The sum of one group or window.
#[derive(Debug, Default)]
struct SingleSum {
    sum: i64,
    /// Number of values that are not null. If it is 0, the sum is null.
    values: usize,
}

impl Accumulator for SingleSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in whole(values)?.iter().flatten() {
            self.sum = plus(self.sum, value)?;
            self.values += 1;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in whole(values)?.iter().flatten() {
            self.sum = self.sum.checked_sub(value).ok_or_else(overflow)?;
            self.values = self.values.saturating_sub(1);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64((self.values > 0).then_some(self.sum)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of::<SingleSum>()
    }
}

/// The sums of many groups; `None` is a group without a value.
#[derive(Debug, Default)]
struct GroupSums {
    sums: Vec<Option<i64>>,
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, None);
        for ((row, value), &group) in whole(values)?.iter().enumerate().zip(groups) {
            let Some(value) = value.filter(|_| passes(filter, row)) else { continue };
            if let Some(sum) = self.sums.get_mut(group) {
                *sum = Some(plus(sum.unwrap_or(0), value)?);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.update_batch(states, groups, None, count)
    }

    fn evaluate(&mut self, which: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(which.take_needed(&mut self.sums))))
    }

    fn state(&mut self, which: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(which)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = whole(values)?;
        let kept = values.iter().enumerate().map(|(row, value)| value.filter(|_| passes(filter, row)));
        Ok(vec![Arc::new(kept.collect::<Int64Array>())])
    }

    fn size(&self) -> usize {
        size_of::<GroupSums>() + self.sums.capacity() * size_of::<Option<i64>>()
    }
}

/// `FILTER (WHERE ...)`: null excludes the row.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

fn whole(values: &[ArrayRef]) -> Result<&Int64Array> {
    let column = values.first().and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| DataFusionError::Internal("sum: a column of whole numbers was expected".to_owned()))
}
