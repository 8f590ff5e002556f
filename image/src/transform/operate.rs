//! Adds drawn operations to a plan.

use crate::draw::Step;
use crate::error::ImageError;
use crate::operation::Operation;
use crate::plan::Plan;

/// Adds the drawn operations to the plan of a picture.
pub(super) fn operate(transform: &'static str, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
    for operation in step.expect_operations(transform)? {
        operation.check(plan.size())?;
        if plan.exact && matches!(operation, Operation::GaussianBlur { .. }) {
            return Err(ImageError::draw(format!("{operation:?} has no exact results")));
        }
        if matches!(operation, Operation::Affine { .. }) {
            plan.not_followed = Some(transform);
        }
        plan.operate(operation.clone());
    }
    Ok(())
}
