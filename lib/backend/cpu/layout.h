#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>

#include "backend/op.h"

namespace pd::cpu {

using MemoryDesc = dnnl::memory::desc;

/// What kernels run on: one a backend.
struct Context {
  dnnl::engine engine;
  dnnl::stream stream;
  int threads = 1;
};

/// Dense, row-major f32.
MemoryDesc PlainDesc(const Shape& dims);
/// Free for oneDNN to choose.
MemoryDesc AnyDesc(const Shape& dims);
bool IsPlain(const MemoryDesc& desc);

/// A layout of tensors of shape `dims` that is stored as `desc` (whose dims may be a reshape:
/// grouped weights have five). Dense when `desc` is plain.
Layout MakeLayout(const Shape& dims, const MemoryDesc& desc);
/// The description of a layout made by MakeLayout, or the plain one of a dense f32 layout.
MemoryDesc DescOf(const Layout& layout);

/// Exact copies between a layout and dense memory. From any thread.
void CopyToDense(const Context& context, const Layout& layout, const void* inner, void* dense);
void CopyFromDense(const Context& context, const Layout& layout, const void* dense, void* inner);

/// An activation [N, C, …] as every layout of this backend stores it: blocks of channels, and in
/// each block the channels innermost. Dense NCHW has blocks of 1, NHWC one block of C.
struct ChannelView {
  int64_t samples = 0, channels = 0, pixels = 0, block = 1;

  int64_t blocks() const { return (channels + block - 1) / block; }
  int64_t Offset(int64_t n, int64_t c, int64_t pixel) const {
    return ((n * blocks() + c / block) * pixels + pixel) * block + c % block;
  }
};

/// Empty when `desc` is none of these.
std::optional<ChannelView> ViewOf(const MemoryDesc& desc);
/// Of an activation's layout.
ChannelView ViewOf(const Layout& layout);

/// Writes zeros to the channels of the last block that do not exist.
void ZeroPadding(const ChannelView& view, float* data);

}  // namespace pd::cpu
