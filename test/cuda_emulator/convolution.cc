// The three computations of a convolution, as plain loops over dense copies of the tensors.

#include "convolution.h"

#include <algorithm>
#include <vector>

namespace cuda_emulator::library {
namespace {

struct Shape {
  int64_t n, c, h, w, k, r, s, p, q, groups;

  explicit Shape(const Convolution& v)
      : n(v.x.dims[0]),
        c(v.x.dims[1]),
        h(v.x.dims[2]),
        w(v.x.dims[3]),
        k(v.w.dims[0]),
        r(v.w.dims[2]),
        s(v.w.dims[3]),
        p(v.y.dims[2]),
        q(v.y.dims[3]),
        groups(v.groups) {}

  int64_t GroupChannels() const { return c / groups; }
  int64_t GroupFilters() const { return k / groups; }
};

// Outputs [from, to) whose window element `offset` (from the window's start) lies in the input.
struct Range {
  int64_t from, to;
};
Range OutputsTouching(const Window& window, int64_t offset, int64_t input, int64_t outputs) {
  const int64_t shift = offset - window.padding;  // input index = output * stride + shift
  const int64_t from = shift >= 0 ? 0 : (-shift + window.stride - 1) / window.stride;
  const int64_t last = input - 1 - shift;
  const int64_t to = last < 0 ? 0 : last / window.stride + 1;
  return {from, std::min(to, outputs)};
}

// For filter element (r, s): f(index into an x plane, index into a y plane, count) for each row of
// outputs; the y indices are consecutive, the x indices columns.stride apart.
template <class F>
void ForEachRow(const Convolution& v, const Shape& shape, int64_t r, int64_t s, F&& f) {
  const int64_t row = (v.flip ? shape.r - 1 - r : r) * v.rows.dilation;
  const int64_t column = (v.flip ? shape.s - 1 - s : s) * v.columns.dilation;
  const Range ps = OutputsTouching(v.rows, row, shape.h, shape.p);
  const Range qs = OutputsTouching(v.columns, column, shape.w, shape.q);
  if (qs.from >= qs.to) return;
  for (int64_t p = ps.from; p < ps.to; ++p) {
    const int64_t h = p * v.rows.stride - v.rows.padding + row;
    const int64_t w = qs.from * v.columns.stride - v.columns.padding + column;
    f(h * shape.w + w, p * shape.q + qs.from, qs.to - qs.from);
  }
}

int64_t Rotated(int64_t i, int64_t count, uint64_t seed) {
  return static_cast<int64_t>((static_cast<uint64_t>(i) + seed) % static_cast<uint64_t>(count));
}

size_t Index(int64_t i) { return static_cast<size_t>(i); }

template <class Sum>
void Forward(const Convolution& v, Arithmetic arithmetic, Blend blend, const float* x_data,
             const float* w_data, float* y_data) {
  const Shape shape(v);
  const std::vector<float> x = Gather(x_data, v.x, arithmetic.tf32);
  const std::vector<float> w = Gather(w_data, v.w, arithmetic.tf32);
  std::vector<Sum> plane(Index(shape.p * shape.q));
  const int64_t channels = shape.GroupChannels();
  for (int64_t n = 0; n < shape.n; ++n) {
    for (int64_t k = 0; k < shape.k; ++k) {
      std::fill(plane.begin(), plane.end(), Sum{0});
      const int64_t first_channel = k / shape.GroupFilters() * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const float* const in = &x[Index((n * shape.c + first_channel + c) * shape.h * shape.w)];
        const float* const filter = &w[Index((k * channels + c) * shape.r * shape.s)];
        for (int64_t r = 0; r < shape.r; ++r) {
          for (int64_t s = 0; s < shape.s; ++s) {
            const Sum weight = filter[r * shape.s + s];
            ForEachRow(v, shape, r, s, [&](int64_t from, int64_t to, int64_t count) {
              for (int64_t i = 0; i < count; ++i) {
                plane[Index(to + i)] += weight * static_cast<Sum>(in[from + i * v.columns.stride]);
              }
            });
          }
        }
      }
      float* const out = y_data + n * v.y.strides[0] + k * v.y.strides[1];
      size_t i = 0;
      ForEachIndex<1>(2, v.y.dims + 2, {v.y.strides + 2},
                      [&](const int64_t* at) { blend(plane[i++], &out[at[0]]); });
    }
  }
}

template <class Sum>
void BackwardData(const Convolution& v, Arithmetic arithmetic, Blend blend, const float* w_data,
                  const float* dy_data, float* dx_data) {
  const Shape shape(v);
  const std::vector<float> w = Gather(w_data, v.w, arithmetic.tf32);
  const std::vector<float> dy = Gather(dy_data, v.y, arithmetic.tf32);
  std::vector<Sum> plane(Index(shape.h * shape.w));
  const int64_t channels = shape.GroupChannels(), filters = shape.GroupFilters();
  for (int64_t n = 0; n < shape.n; ++n) {
    for (int64_t c = 0; c < shape.c; ++c) {
      std::fill(plane.begin(), plane.end(), Sum{0});
      for (int64_t j = 0; j < filters; ++j) {
        const int64_t k = c / channels * filters + Rotated(j, filters, arithmetic.seed);
        const float* const gradient = &dy[Index((n * shape.k + k) * shape.p * shape.q)];
        const float* const filter = &w[Index((k * channels + c % channels) * shape.r * shape.s)];
        for (int64_t i = 0; i < shape.r; ++i) {
          const int64_t r = Rotated(i, shape.r, arithmetic.seed >> 8);
          for (int64_t s = 0; s < shape.s; ++s) {
            const Sum weight = filter[r * shape.s + s];
            ForEachRow(v, shape, r, s, [&](int64_t to, int64_t from, int64_t count) {
              for (int64_t q = 0; q < count; ++q) {
                plane[Index(to + q * v.columns.stride)] +=
                    weight * static_cast<Sum>(gradient[from + q]);
              }
            });
          }
        }
      }
      float* const out = dx_data + n * v.x.strides[0] + c * v.x.strides[1];
      size_t i = 0;
      ForEachIndex<1>(2, v.x.dims + 2, {v.x.strides + 2},
                      [&](const int64_t* at) { blend(plane[i++], &out[at[0]]); });
    }
  }
}

template <class Sum>
void BackwardFilter(const Convolution& v, Arithmetic arithmetic, Blend blend, const float* x_data,
                    const float* dy_data, float* dw_data) {
  const Shape shape(v);
  const std::vector<float> x = Gather(x_data, v.x, arithmetic.tf32);
  const std::vector<float> dy = Gather(dy_data, v.y, arithmetic.tf32);
  const int64_t channels = shape.GroupChannels();
  ForEachIndex<1>(4, v.w.dims, {v.w.strides}, [&](const int64_t* at) {
    // The filter is dense, so the offset gives the index.
    const int64_t s = at[0] % shape.s, r = at[0] / shape.s % shape.r;
    const int64_t k = at[0] / (shape.s * shape.r * channels);
    const int64_t c = k / shape.GroupFilters() * channels + at[0] / (shape.s * shape.r) % channels;
    Sum sum = 0;
    for (int64_t i = 0; i < shape.n; ++i) {
      const int64_t n = Rotated(i, shape.n, arithmetic.seed);
      const float* const in = &x[Index((n * shape.c + c) * shape.h * shape.w)];
      const float* const gradient = &dy[Index((n * shape.k + k) * shape.p * shape.q)];
      ForEachRow(v, shape, r, s, [&](int64_t from, int64_t to, int64_t count) {
        Sum row = 0;
        const int64_t start = Rotated(0, count, arithmetic.seed >> 8);
        const auto add = [&](int64_t first, int64_t end) {
          for (int64_t q = first; q < end; ++q) {
            row += static_cast<Sum>(in[from + q * v.columns.stride]) *
                   static_cast<Sum>(gradient[to + q]);
          }
        };
        add(start, count);
        add(0, start);
        sum += row;
      });
    }
    blend(sum, &dw_data[at[0]]);
  });
}

}  // namespace

void ConvolveForward(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                     const float* x, const float* w, float* y) {
  (arithmetic.in_float ? Forward<float> : Forward<double>)(convolution, arithmetic, blend, x, w, y);
}

void ConvolveBackwardData(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                          const float* w, const float* dy, float* dx) {
  (arithmetic.in_float ? BackwardData<float> : BackwardData<double>)(convolution, arithmetic, blend,
                                                                     w, dy, dx);
}

void ConvolveBackwardFilter(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                            const float* x, const float* dy, float* dw) {
  (arithmetic.in_float ? BackwardFilter<float> : BackwardFilter<double>)(convolution, arithmetic,
                                                                         blend, x, dy, dw);
}

}  // namespace cuda_emulator::library
