#include "backend/cpu/kernel.h"

#include <cstring>

#include "base/error.h"

namespace pd::cpu {
namespace {

void Check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  Throw(ErrorCode::kDevice, "oneDNN: {} failed with status {}", what, static_cast<int>(status));
}

/// What to reorder `stored` to for a primitive that wants `wanted`; empty when it can read it as it
/// is. The primitive may see other dims (a matrix) where both are plain.
std::optional<MemoryDesc> Reordered(const MemoryDesc& stored, const MemoryDesc& wanted) {
  if (stored.dims() == wanted.dims()) {
    return stored == wanted ? std::nullopt : std::optional(wanted);
  }
  PD_CHECK(IsPlain(wanted), "a reshaped operand must be plain");
  return IsPlain(stored) ? std::nullopt : std::optional(PlainDesc(stored.dims()));
}

}  // namespace

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool IsReference(const dnnl::primitive_desc_base& primitive) {
  return std::strstr(primitive.impl_info_str(), "ref") != nullptr;
}

Kernel::Kernel(const Context& context, const dnnl::primitive_desc_base& primitive,
               const std::vector<Operand>& operands)
    : context_(context), desc_(primitive) {
  size_t inner = 0;  // of the reorders, which run one after the other
  for (const Operand& operand : operands) {
    Argument argument{.arg = operand.arg,
                      .desc = desc_.query_md(dnnl::query::exec_arg_md, operand.arg),
                      .memory = {},
                      .output = operand.output,
                      .reorder = nullptr,
                      .offset = 0};
    if (operand.stored.has_value()) {
      if (const auto reordered = Reordered(*operand.stored, argument.desc)) {
        argument.reorder = operand.output ? MakeReorder(context, *reordered, *operand.stored)
                                          : MakeReorder(context, *operand.stored, *reordered);
        argument.offset = TakeWorkspace(reordered->get_size());
        inner = std::max(inner, argument.reorder->workspace_bytes());
      }
    }
    arguments_.push_back(std::move(argument));
  }
  scratchpad_bytes_ = desc_.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD).get_size();
  scratchpad_offset_ = TakeWorkspace(std::max(scratchpad_bytes_, inner));
}

size_t Kernel::TakeWorkspace(size_t bytes) {
  const size_t offset = workspace_bytes_;
  workspace_bytes_ += (bytes + 63) / 64 * 64;
  return offset;
}

void Kernel::Build() {
  if (!exec_args_.empty()) return;
  primitive_ = dnnl::primitive(desc_.get());
  for (Argument& argument : arguments_) {
    argument.memory = dnnl::memory(argument.desc, context_.engine, DNNL_MEMORY_NONE);
    exec_args_.push_back({argument.arg, argument.memory.get()});
    if (argument.reorder != nullptr) argument.reorder->Build();
  }
  if (scratchpad_bytes_ > 0) {
    const MemoryDesc desc = desc_.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
    scratchpad_ = dnnl::memory(desc, context_.engine, DNNL_MEMORY_NONE);
    exec_args_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
  }
}

void Kernel::Run(std::span<const void* const> data, void* workspace) {
  PD_CHECK(data.size() == arguments_.size() && !exec_args_.empty(),
           "a kernel of {} operands run with {}, or before it was built", arguments_.size(),
           data.size());
  std::byte* const work = static_cast<std::byte*>(workspace);
  std::byte* const scratch = work + scratchpad_offset_;
  const void* const* given = data.data();
  for (Argument& argument : arguments_) {
    void* address = const_cast<void*>(*given++);
    if (argument.reorder != nullptr) {
      void* const copy = work + argument.offset;
      if (!argument.output) argument.reorder->Run({address, copy}, scratch);
      address = copy;
    }
    Check(dnnl_memory_set_data_handle(argument.memory.get(), address), "setting an address");
  }
  if (scratchpad_bytes_ > 0) {
    Check(dnnl_memory_set_data_handle(scratchpad_.get(), scratch), "setting an address");
  }
  Check(dnnl_primitive_execute(primitive_.get(), context_.stream.get(),
                               static_cast<int>(exec_args_.size()), exec_args_.data()),
        desc_.impl_info_str());
  given = data.data();
  for (Argument& argument : arguments_) {
    void* address = const_cast<void*>(*given++);
    if (argument.reorder != nullptr && argument.output) {
      argument.reorder->Run({work + argument.offset, address}, scratch);
    }
  }
}

std::unique_ptr<Kernel> MakeReorder(const Context& context, const MemoryDesc& from,
                                    const MemoryDesc& to) {
  const dnnl::reorder::primitive_desc desc(context.engine, from, context.engine, to,
                                           UserScratchpad());
  return std::make_unique<Kernel>(context, desc,
                                  std::vector<Operand>{{DNNL_ARG_FROM}, {DNNL_ARG_TO}});
}

}  // namespace pd::cpu
