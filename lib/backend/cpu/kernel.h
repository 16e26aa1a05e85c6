#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/layout.h"

namespace pd::cpu {

/// Scratchpads come from OpArgs::workspace.
dnnl::primitive_attr UserScratchpad();

/// oneDNN's plain loops, hundreds of times slower than its kernels.
bool IsReference(const dnnl::primitive_desc_base& primitive);

/// An argument of a primitive. Where it is stored otherwise than the primitive wants it, the kernel
/// reorders it by way of the workspace.
struct Operand {
  int arg = 0;                            ///< DNNL_ARG_….
  std::optional<MemoryDesc> stored = {};  ///< Not given: as the primitive wants it.
  bool output = false;
};

/// A oneDNN primitive with its arguments prepared, so that a run only sets their addresses.
class Kernel {
 public:
  Kernel(const Context& context, const dnnl::primitive_desc_base& primitive,
         const std::vector<Operand>& operands);

  size_t workspace_bytes() const { return workspace_bytes_; }
  /// oneDNN's name of the implementation.
  std::string implementation() const { return desc_.impl_info_str(); }

  /// Generates the code, once. Before the first Run.
  void Build();
  /// `data`: the operands' memory, in their order. Allocates nothing (oneDNN does, a little).
  void Run(std::span<const void* const> data, void* workspace);
  void Run(std::initializer_list<const void*> data, void* workspace) {
    Run(std::span<const void* const>(data.begin(), data.size()), workspace);
  }

 private:
  struct Argument {
    int arg = 0;
    MemoryDesc desc;  // as the primitive wants it
    dnnl::memory memory;
    bool output = false;
    std::unique_ptr<Kernel> reorder;
    size_t offset = 0;  // of the reordered copy in the workspace
  };

  size_t TakeWorkspace(size_t bytes);

  Context context_;
  dnnl::primitive_desc_base desc_;
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  dnnl::memory scratchpad_;
  size_t scratchpad_offset_ = 0, scratchpad_bytes_ = 0;
  size_t workspace_bytes_ = 0;
  std::vector<dnnl_exec_arg_t> exec_args_;
};

/// Copies between two descriptions of one shape; operands from, to.
std::unique_ptr<Kernel> MakeReorder(const Context& context, const MemoryDesc& from,
                                    const MemoryDesc& to);

}  // namespace pd::cpu
