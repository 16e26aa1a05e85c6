#include "backend/cpu/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace pd::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;

/// What Layout::inner points to. The reorders are made at the first use: most layouts never meet
/// dense memory.
struct Inner {
  explicit Inner(const MemoryDesc& stored) : desc(stored), plain(PlainDesc(desc.dims())) {}

  const MemoryDesc desc, plain;
  mutable std::once_flag once;
  mutable dnnl::primitive to_dense, from_dense;
};

const Inner& InnerOf(const Layout& layout) {
  return *static_cast<const Inner*>(layout.inner.get());
}

void BuildReorders(const Context& context, const Inner& inner) {
  std::call_once(inner.once, [&] {
    const dnnl::engine& engine = context.engine;
    inner.to_dense = dnnl::reorder({engine, inner.desc, engine, inner.plain});
    inner.from_dense = dnnl::reorder({engine, inner.plain, engine, inner.desc});
  });
}

/// With memory objects of its own, so that threads do not meet.
void Reorder(const Context& context, const dnnl::primitive& reorder, const MemoryDesc& from_desc,
             const void* from, const MemoryDesc& to_desc, void* to) {
  const dnnl::memory source(from_desc, context.engine, const_cast<void*>(from));
  const dnnl::memory target(to_desc, context.engine, to);
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}};
  const dnnl_status_t status = dnnl_primitive_execute(reorder.get(), context.stream.get(), 2, args);
  if (status != dnnl_success) {
    Throw(ErrorCode::kDevice, "oneDNN: reorder failed with status {}", static_cast<int>(status));
  }
}

}  // namespace

MemoryDesc PlainDesc(const Shape& dims) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return {dims, kF32, strides};
}

MemoryDesc AnyDesc(const Shape& dims) { return {dims, kF32, Tag::any}; }

bool IsPlain(const MemoryDesc& desc) { return desc == PlainDesc(desc.dims()); }

namespace {

// All that tells where an element lies; a kind of oneDNN's own (Winograd's weights) by its bytes,
// which are zero where it says nothing.
uint64_t DigestOf(const MemoryDesc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  if (data.format_kind != dnnl_blocked) {
    return HashBytes({reinterpret_cast<const char*>(&data), sizeof data});
  }
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  std::string text = fmt::format("{} {}", static_cast<int>(data.data_type), data.offset0);
  for (int i = 0; i < data.ndims; ++i) {
    text += fmt::format(", {} {} {}", data.dims[i], data.padded_dims[i], blocking.strides[i]);
  }
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    text += fmt::format("; {} {}", blocking.inner_idxs[i], blocking.inner_blks[i]);
  }
  return HashBytes(text);
}

}  // namespace

Layout MakeLayout(const Shape& dims, const MemoryDesc& desc) {
  Layout layout = DenseLayout(dims, DType::kF32);
  if (IsPlain(desc)) return layout;
  layout.bytes = desc.get_size();
  layout.inner = std::make_shared<const Inner>(desc);
  layout.inner_digest = DigestOf(desc);
  return layout;
}

MemoryDesc DescOf(const Layout& layout) {
  return layout.dense() ? PlainDesc(layout.dims) : InnerOf(layout).desc;
}

void CopyToDense(const Context& context, const Layout& layout, const void* inner, void* dense) {
  const Inner& stored = InnerOf(layout);
  BuildReorders(context, stored);
  Reorder(context, stored.to_dense, stored.desc, inner, stored.plain, dense);
}

void CopyFromDense(const Context& context, const Layout& layout, const void* dense, void* inner) {
  const Inner& stored = InnerOf(layout);
  BuildReorders(context, stored);
  Reorder(context, stored.from_dense, stored.plain, dense, stored.desc, inner);
}

std::optional<ChannelView> ViewOf(const MemoryDesc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  if (data.format_kind != dnnl_blocked || data.ndims < 2 || data.offset0 != 0) return {};
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  ChannelView view{.samples = data.dims[0], .channels = data.dims[1], .pixels = 1, .block = 1};
  for (int i = 2; i < data.ndims; ++i) view.pixels *= data.dims[i];
  if (blocking.inner_nblks == 1 && blocking.inner_idxs[0] == 1) {
    view.block = blocking.inner_blks[0];
  } else if (blocking.inner_nblks != 0) {
    return {};
  } else if (data.ndims > 2 && view.channels > 1 && blocking.strides[1] == 1) {
    view.block = view.channels;
  }
  // The strides that the view stands for; those of extents of 1 do not matter.
  int64_t stride = view.block;
  for (int i = data.ndims - 1; i >= 2; --i) {
    if (data.dims[i] > 1 && blocking.strides[i] != stride) return {};
    stride *= data.dims[i];
  }
  if (view.blocks() > 1 && blocking.strides[1] != stride) return {};
  stride *= view.blocks();
  if (view.samples > 1 && blocking.strides[0] != stride) return {};
  return view;
}

ChannelView ViewOf(const Layout& layout) {
  const std::optional<ChannelView> view = ViewOf(DescOf(layout));
  PD_CHECK(view.has_value(), "an activation {} is stored in no known way", ToString(layout.dims));
  return *view;
}

void ZeroPadding(const ChannelView& view, float* data) {
  const int64_t used = view.channels % view.block;
  if (used == 0) return;
  for (int64_t n = 0; n < view.samples; ++n) {
    float* lane = data + view.Offset(n, view.channels - used, 0);
    for (int64_t i = 0; i < view.pixels; ++i, lane += view.block) {
      std::fill(lane + used, lane + view.block, 0.0F);
    }
  }
}

}  // namespace pd::cpu
