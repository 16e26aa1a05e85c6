#pragma once

#include <functional>
#include <memory>

#include "backend/cpu/layout.h"
#include "backend/op.h"

namespace pd::cpu {

/// The operation that `make` plans on dense inputs. Where an input is stored in a layout of its
/// own, the operation works on a dense copy in the workspace, and its gradient is reordered back.
std::unique_ptr<Op> OnDenseInputs(
    const Context& context, const OpRequest& request,
    const std::function<std::unique_ptr<Op>(const OpRequest& dense)>& make);

}  // namespace pd::cpu
