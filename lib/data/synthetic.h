#pragma once

#include "data/dataset.h"

namespace pd {

/// Data made up on the spot, for trying things out without files: 6,400 training and 1,000 test
/// samples for any inputs, which depend on the seed only. Sample i is of class i mod classes.
/// - f32: the pattern of the class plus noise that is nearly Gaussian; mean about 0, deviation
///   about 1.
/// - i32 []: the class (modulo the input's limit).
/// - i32 [T…]: tokens of a Markov chain that starts with the class and whose most likely next
///   token, at 0.75, is a fixed step on. Targets of such a shape are the tokens one later; of a
///   model that reads no tokens, the class and its successors in order.
/// So every target can be learned from the other inputs.
DataSource OpenSynthetic(const DataRequest& request);

}  // namespace pd
