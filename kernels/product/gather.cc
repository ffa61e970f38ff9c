#include "kernels/product/gather.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/sample_index.h"
#include "kernels/core/strided.h"

namespace plumbline {
namespace {

constexpr uint64_t kAlign = 16;
uint64_t Aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::string Shape(const TensorView& v) {
  std::string text = "[";
  for (int i = 0; i < v.rank; ++i)
    absl::StrAppend(&text, i > 0 ? "," : "", v.shape[static_cast<size_t>(i)]);
  return text + "]";
}

absl::Status Expect(bool fine, const char* name, const TensorView& v, const std::string& what) {
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected ", what, ", found ", DTypeName(v.dtype), Shape(v)));
}

int64_t Last(const TensorView& v) { return v.shape[static_cast<size_t>(v.rank - 1)]; }

// Returns the view without its last axis.
TensorView Leading(const TensorView& v) {
  TensorView rows = v;
  --rows.rank;
  return rows;
}

bool SameLeading(const TensorView& x, const TensorView& y) {
  return x.rank == y.rank &&
         std::equal(x.shape.begin(), x.shape.begin() + x.rank - 1, y.shape.begin());
}

absl::Status CheckEach(const ProductInput& in) {
  const std::pair<const char*, const TensorView*> all[] = {{"a", &in.a},
                                                           {"b", &in.b},
                                                           {"d", &in.d},
                                                           {"c", &in.c},
                                                           {"a_scale", &in.a_scale},
                                                           {"b_scale", &in.b_scale}};
  for (const auto& [name, view] : all) {
    const bool scale = view == &in.a_scale || view == &in.b_scale;
    if ((view == &in.c || scale) && !view->present()) continue;
    int64_t count = 0;
    if (absl::Status s = CheckTensor(*view, name, &count); !s.ok()) return s;
    const bool fits = IsFloating(view->dtype) || (scale && view->dtype == DType::kU8);
    if (absl::Status s = Expect(fits, name, *view, "floating elements"); !s.ok()) return s;
    if (absl::Status s = Expect(count > 0, name, *view, "at least one element"); !s.ok()) return s;
    if (view->device != in.a.device)
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected to lie where a does"));
  }
  return absl::OkStatus();
}

int64_t Ceil(int64_t n, int64_t of) { return n / of + (n % of != 0); }
int64_t BlockOf(const ProductInput& in) { return in.block > 0 ? in.block : Last(in.a); }
int64_t Tile(int64_t tile) { return tile > 0 ? tile : 1; }
bool IsOne(const TensorView& v) { return v.elements() == 1; }

// Returns the reason for the expected number of scales.
std::string ByBlock(const ProductInput& in) {
  return in.block > 0 ? absl::StrCat(" (block ", in.block, ")") : std::string();
}

absl::Status CheckScales(const ProductInput& in) {
  if (in.block < 0 || in.a_tile < 0 || in.b_tile < 0)
    return absl::InvalidArgumentError("block, a_tile, b_tile: expected 0 or more");
  const int64_t blocks = Ceil(Last(in.a), BlockOf(in));
  const TensorView &a = in.a_scale, &b = in.b_scale;
  if (!a.present() && !b.present() && (in.block > 0 || in.a_tile > 0 || in.b_tile > 0))
    return absl::InvalidArgumentError("block: expected a_scale or b_scale with it");
  if (a.present() && !IsOne(a)) {
    const int64_t rows = Ceil(Leading(in.a).elements(), Tile(in.a_tile));
    const bool fits = a.rank >= 2 && Last(a) == blocks && Leading(a).elements() == rows;
    if (absl::Status s =
            Expect(fits, "a_scale", a,
                   absl::StrCat("[", rows, ",", blocks, "]", ByBlock(in), " or one element"));
        !s.ok())
      return s;
  }
  if (!b.present() || IsOne(b)) return absl::OkStatus();
  const int64_t columns = Ceil(in.b.shape[1], Tile(in.b_tile));
  const bool fits = b.rank == 2 && b.shape[0] == blocks && b.shape[1] == columns;
  return Expect(fits, "b_scale", b,
                absl::StrCat("[", blocks, ",", columns, "]", ByBlock(in), " or one element"));
}

}  // namespace

absl::Status CheckProduct(const ProductInput& in) {
  if (absl::Status s = CheckEach(in); !s.ok()) return s;
  if (absl::Status s = Expect(in.a.rank >= 2, "a", in.a, "[..., K], two axes or more"); !s.ok())
    return s;
  const std::string k = std::to_string(Last(in.a));
  if (absl::Status s = Expect(in.b.rank == 2 && in.b.shape[0] == Last(in.a), "b", in.b,
                              "[" + k + ", N], K as in a " + Shape(in.a));
      !s.ok())
    return s;
  const std::string n = std::to_string(in.b.shape[1]);
  if (absl::Status s = Expect(SameLeading(in.d, in.a) && Last(in.d) == in.b.shape[1], "d", in.d,
                              "a's shape with " + n + " in place of " + k);
      !s.ok())
    return s;
  if (absl::Status s = CheckScales(in); !s.ok()) return s;
  if (!in.c.present()) return absl::OkStatus();
  const bool bias = in.c.rank == 1 && in.c.shape[0] == in.b.shape[1];
  return Expect(bias || (SameLeading(in.c, in.d) && Last(in.c) == Last(in.d)), "c", in.c,
                "[" + n + "] or d's shape");
}

namespace {

ProductPart ProductPartOf(const TensorView& v) {
  ProductPart part;
  part.data = v.data;
  part.size = static_cast<uint32_t>(DTypeSize(v.dtype));
  return part;
}

int64_t LastStride(const TensorView& v) { return v.stride[static_cast<size_t>(v.rank - 1)]; }

template <size_t Size>
void CopyVector(const ProductPlan& p, const ProductPart& part, int64_t from, std::byte* out) {
  const auto* data = static_cast<const std::byte*>(part.data) + from * static_cast<int64_t>(Size);
  const int64_t step = part.step * static_cast<int64_t>(Size);
  for (int64_t k = 0; k < p.inner; ++k)
    std::memcpy(out + k * static_cast<int64_t>(Size), data + k * step, Size);
}

// Copies columns of a row-major matrix: first all elements of one k, then of the next, so that a
// shared cache line is read once.
template <size_t Size>
void CopyAcross(const ProductPlan& p, std::byte* out) {
  const auto* data = static_cast<const std::byte*>(p.b.data);
  const auto size = static_cast<int64_t>(Size);
  for (int64_t k = 0; k < p.inner; ++k) {
    for (int32_t j = 0; j < p.columns; ++j) {
      const int64_t from = p.b.column[static_cast<size_t>(j)] + k * p.b.step;
      std::memcpy(out + (j * p.inner + k) * size, data + from * size, Size);
    }
  }
}

template <size_t Size>
void CopyVectors(const ProductPlan& p, const ProductPart& part, bool rows, std::byte* out) {
  if (!rows && part.step != 1) return CopyAcross<Size>(p, out);
  for (int32_t i = 0; i < (rows ? p.rows : p.columns); ++i) {
    const auto at = static_cast<size_t>(i);
    CopyVector<Size>(p, part, rows ? part.row[at] : part.column[at],
                     out + static_cast<size_t>(i * p.inner) * Size);
  }
}

void CopyVectors(const ProductPlan& p, const ProductPart& part, bool rows, std::byte* out) {
  switch (part.size) {
    case 8:
      return CopyVectors<8>(p, part, rows, out);
    case 4:
      return CopyVectors<4>(p, part, rows, out);
    case 2:
      return CopyVectors<2>(p, part, rows, out);
    default:
      return CopyVectors<1>(p, part, rows, out);
  }
}

// Copies one scale per block: there are few, in any layout.
void CopyScales(const ProductPlan& p, const ProductPart& part, bool rows, std::byte* out) {
  const auto* data = static_cast<const std::byte*>(part.data);
  const auto size = static_cast<int64_t>(part.size);
  for (size_t i = 0; size > 0 && i < static_cast<size_t>(rows ? p.rows : p.columns); ++i) {
    for (int32_t j = 0; j < p.blocks; ++j, out += part.size) {
      const int64_t from = (rows ? part.row[i] : part.column[i]) + j * part.step;
      std::memcpy(out, data + from * size, part.size);
    }
  }
}

void CopyElements(const ProductPlan& p, const ProductPart& part, std::byte* out) {
  const auto* data = static_cast<const std::byte*>(part.data);
  ProductPairs pairs(p.rows, p.columns);
  for (int32_t i = 0; i < p.elements; ++i, out += part.size) {
    const ProductPair pair = pairs.Next();
    const int64_t from =
        part.row[static_cast<size_t>(pair.row)] + part.column[static_cast<size_t>(pair.column)];
    std::memcpy(out, data + from * static_cast<int64_t>(part.size), part.size);
  }
}

}  // namespace

uint64_t SampledRow(uint64_t key, uint64_t rows, int i) {
  return SampleIndex(key, rows, static_cast<uint64_t>(i));
}

uint64_t SampledColumn(uint64_t key, uint64_t columns, int i) {
  return SampleIndex(~key, columns, static_cast<uint64_t>(i));
}

namespace {

// Plans the places of the scales of the sampled rows and columns; a tensor's single scale has one
// place.
void PlanScales(const ProductInput& in, uint64_t key, ProductPlan* plan) {
  if (!in.a_scale.present() && !in.b_scale.present()) return;
  plan->blocks = static_cast<int32_t>(Ceil(plan->inner, BlockOf(in)));
  if (in.a_scale.present()) {
    plan->a_scale = ProductPartOf(in.a_scale);
    if (!IsOne(in.a_scale)) {
      plan->a_scale.step = LastStride(in.a_scale);
      const StridedAxes axes = AxesOf(Leading(in.a_scale));
      const auto rows = static_cast<uint64_t>(Leading(in.a).elements());
      for (int32_t i = 0; i < plan->rows; ++i)
        plan->a_scale.row[static_cast<size_t>(i)] =
            axes.Offset(static_cast<int64_t>(SampledRow(key, rows, i)) / Tile(in.a_tile));
    }
  }
  if (!in.b_scale.present()) return;
  plan->b_scale = ProductPartOf(in.b_scale);
  if (IsOne(in.b_scale)) return;
  plan->b_scale.step = in.b_scale.stride[0];
  const auto columns = static_cast<uint64_t>(in.b.shape[1]);
  for (int32_t i = 0; i < plan->columns; ++i)
    plan->b_scale.column[static_cast<size_t>(i)] =
        static_cast<int64_t>(SampledColumn(key, columns, i)) / Tile(in.b_tile) *
        in.b_scale.stride[1];
}

}  // namespace

ProductPlan PlanProduct(const ProductInput& in, uint64_t key, int vectors, int elements) {
  ProductPlan plan;
  plan.inner = Last(in.a);
  const int64_t rows = Leading(in.a).elements(), columns = in.b.shape[1];
  vectors = std::clamp(vectors, 1, kProductVectors);
  plan.rows = static_cast<int32_t>(std::min<int64_t>(vectors, rows));
  plan.columns = static_cast<int32_t>(std::min<int64_t>(vectors, columns));
  plan.elements = std::clamp(elements, 1, plan.rows * plan.columns);
  plan.a = ProductPartOf(in.a);
  plan.b = ProductPartOf(in.b);
  plan.d = ProductPartOf(in.d);
  if (in.c.present()) plan.c = ProductPartOf(in.c);
  plan.a.step = LastStride(in.a);
  plan.b.step = in.b.stride[0];
  const bool bias = in.c.present() && in.c.rank == 1;
  const StridedAxes a_rows = AxesOf(Leading(in.a)), d_rows = AxesOf(Leading(in.d));
  const StridedAxes c_rows = in.c.present() && !bias ? AxesOf(Leading(in.c)) : StridedAxes();
  for (int32_t i = 0; i < plan.rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto row = static_cast<int64_t>(SampledRow(key, static_cast<uint64_t>(rows), i));
    plan.a.row[at] = a_rows.Offset(row);
    plan.d.row[at] = d_rows.Offset(row);
    if (in.c.present() && !bias) plan.c.row[at] = c_rows.Offset(row);
  }
  for (int32_t i = 0; i < plan.columns; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto column = static_cast<int64_t>(SampledColumn(key, static_cast<uint64_t>(columns), i));
    plan.b.column[at] = column * in.b.stride[1];
    plan.d.column[at] = column * LastStride(in.d);
    if (in.c.present()) plan.c.column[at] = column * LastStride(in.c);
  }
  const auto inner = static_cast<uint64_t>(plan.inner);
  const auto count = static_cast<uint64_t>(plan.elements);
  plan.b_at = Aligned(static_cast<uint64_t>(plan.rows) * inner * plan.a.size);
  plan.d_at = plan.b_at + Aligned(static_cast<uint64_t>(plan.columns) * inner * plan.b.size);
  plan.c_at = plan.d_at + Aligned(count * plan.d.size);
  PlanScales(in, key, &plan);
  const auto blocks = static_cast<uint64_t>(plan.blocks);
  plan.a_scale_at = plan.c_at + Aligned(count * plan.c.size);
  plan.b_scale_at =
      plan.a_scale_at + Aligned(static_cast<uint64_t>(plan.rows) * blocks * plan.a_scale.size);
  plan.bytes =
      plan.b_scale_at + Aligned(static_cast<uint64_t>(plan.columns) * blocks * plan.b_scale.size);
  return plan;
}

void GatherProduct(const ProductPlan& p, std::byte* out) {
  CopyVectors(p, p.a, true, out);
  CopyVectors(p, p.b, false, out + p.b_at);
  CopyElements(p, p.d, out + p.d_at);
  if (p.c.size != 0) CopyElements(p, p.c, out + p.c_at);
  CopyScales(p, p.a_scale, true, out + p.a_scale_at);
  CopyScales(p, p.b_scale, false, out + p.b_scale_at);
}

}  // namespace plumbline
