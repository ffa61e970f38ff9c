#include "kernels/update/check.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/load.h"
#include "base/parallel.h"
#include "kernels/core/float_mode.h"
#include "kernels/core/strided.h"
#include "kernels/update/core.h"
#include "kernels/update/totals.h"

namespace plumbline {
namespace {

// Elements of a block, as doubles.
struct BlockValues {
  alignas(64) double before[kUpdateBlock];
  alignas(64) double after[kUpdateBlock];
  alignas(64) double intended[kUpdateBlock];
  alignas(64) uint64_t same[kUpdateBlock];
};

template <DType kType>
void LoadAll(const std::byte* data, int n, double* out) {
  for (int i = 0; i < n; ++i) out[i] = LoadDouble(data, kType, i);
}

void Load(const std::byte* data, DType t, int n, double* out) {
  switch (t) {
    case DType::kF64:
      return LoadAll<DType::kF64>(data, n, out);
    case DType::kF32:
      return LoadAll<DType::kF32>(data, n, out);
    case DType::kF16:
      return LoadAll<DType::kF16>(data, n, out);
    case DType::kBF16:
      return LoadAll<DType::kBF16>(data, n, out);
    case DType::kE4M3:
      return LoadAll<DType::kE4M3>(data, n, out);
    default:
      return LoadAll<DType::kE5M2>(data, n, out);
  }
}

template <typename Bits>
void Compare(const std::byte* a, const std::byte* b, int n, uint64_t* same) {
  for (int i = 0; i < n; ++i) same[i] = LoadRaw<Bits>(a, i) == LoadRaw<Bits>(b, i) ? 1 : 0;
}

void Compare(const std::byte* a, const std::byte* b, DType t, int n, uint64_t* same) {
  switch (DTypeSize(t)) {
    case 8:
      return Compare<uint64_t>(a, b, n, same);
    case 4:
      return Compare<uint32_t>(a, b, n, same);
    case 2:
      return Compare<uint16_t>(a, b, n, same);
    default:
      return Compare<uint8_t>(a, b, n, same);
  }
}

// The lanes of a block; each figure is a row of lanes.
struct Lanes {
  alignas(64) double high[kUpdateSums][kUpdateLanes] = {};
  alignas(64) double low[kUpdateSums][kUpdateLanes] = {};
  alignas(64) uint64_t count[kUpdateCounts][kUpdateLanes] = {};

  // Adds element row * kUpdateLanes + lane for the first `lanes` lanes.
  void AddRow(const BlockValues& v, int row, int lanes, const UpdateRounding& rounding) {
    const int first = row * kUpdateLanes;
    for (int lane = 0; lane < lanes; ++lane) {
      const UpdateTerms t = UpdateTermsOf(v.before[first + lane], v.after[first + lane],
                                          v.intended[first + lane], v.same[first + lane], rounding);
      for (int k = 0; k < kUpdateSums; ++k) {
        PairSum sum{high[k][lane], low[k][lane]};
        AddTo(t.sum[k], t.rest[k], &sum);
        high[k][lane] = sum.high;
        low[k][lane] = sum.low;
      }
      for (int k = 0; k < kUpdateCounts; ++k) count[k][lane] += t.count[k];
    }
  }

  void Fold(UpdateTotals* totals) {
    for (int k = 0; k < kUpdateSums; ++k) {
      for (int step = kUpdateLanes / 2; step > 0; step /= 2) {
        for (int lane = 0; lane < step; ++lane) {
          const PairSum sum =
              Joined({high[k][lane], low[k][lane]}, {high[k][lane + step], low[k][lane + step]});
          high[k][lane] = sum.high;
          low[k][lane] = sum.low;
        }
      }
      totals->Add(k, {high[k][0], low[k][0]});
    }
    for (int k = 0; k < kUpdateCounts; ++k) {
      for (const uint64_t n : count[k]) totals->counts[static_cast<size_t>(k)] += n;
    }
  }
};

struct UpdateReaders {
  RunReader before;
  RunReader after;
  RunReader intended;
  DType dtype;
  DType intended_dtype;
};

// Checks elements [first, last), first a multiple of kUpdateBlock.
void CheckBlocks(const UpdateReaders& in, int64_t first, int64_t last, UpdateTotals* totals) {
  const UpdateRounding rounding = RoundingOf(in.dtype);
  const auto values = std::make_unique<BlockValues>();
  // Buffer into which runs that are not dense are gathered.
  std::vector<std::byte> buffer(3 * static_cast<size_t>(kUpdateBlock) * 8);
  std::byte* room = buffer.data();
  for (int64_t i = first; i < last; i += kUpdateBlock) {
    const auto n = static_cast<int>(std::min<int64_t>(kUpdateBlock, last - i));
    const std::byte* before = in.before.Read(i, n, room);
    const std::byte* after = in.after.Read(i, n, room + kUpdateBlock * 8);
    const std::byte* intended = in.intended.Read(i, n, room + kUpdateBlock * 16);
    Load(before, in.dtype, n, values->before);
    Load(after, in.dtype, n, values->after);
    Load(intended, in.intended_dtype, n, values->intended);
    Compare(before, after, in.dtype, n, values->same);
    Lanes lanes;
    for (int row = 0; row < n / kUpdateLanes; ++row) {
      lanes.AddRow(*values, row, kUpdateLanes, rounding);
    }
    if (n % kUpdateLanes != 0) {
      lanes.AddRow(*values, n / kUpdateLanes, n % kUpdateLanes, rounding);
    }
    lanes.Fold(totals);
  }
}

// Uses wider vectors and the same operations, so it gives the same bits.
#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void CheckBlocksAvx2(const UpdateReaders& in,
                                                              int64_t first, int64_t last,
                                                              UpdateTotals* totals) {
  CheckBlocks(in, first, last, totals);
}
#endif

void CheckPart(const UpdateReaders& in, int64_t first, int64_t last, UpdateTotals* totals) {
  const StandardFloatMode mode;
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return CheckBlocksAvx2(in, first, last, totals);
#endif
  CheckBlocks(in, first, last, totals);
}

absl::Status CheckShapes(const TensorView& before, const TensorView& view, std::string_view name) {
  bool same = view.rank == before.rank;
  for (size_t i = 0; same && i < static_cast<size_t>(view.rank); ++i) {
    same = view.shape[i] == before.shape[i];
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                 ": expected the shape of before, found another"));
}

}  // namespace

absl::Status CheckUpdateTensors(const TensorView& before, const TensorView& after,
                                const TensorView& intended, int64_t* count) {
  const struct {
    const TensorView& view;
    std::string_view name;
  } tensors[] = {{before, "before"}, {after, "after"}, {intended, "intended"}};
  for (const auto& [view, name] : tensors) {
    if (absl::Status status = CheckTensor(view, name, count); !status.ok()) return status;
    if (!IsFloating(view.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                     ": expected a floating dtype, found ",
                                                     DTypeName(view.dtype)));
    }
    if (absl::Status status = CheckShapes(before, view, name); !status.ok()) return status;
    if (view.device != before.device) {
      return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                     ": expected the device of before, ",
                                                     before.device, ", found ", view.device));
    }
  }
  if (after.dtype != before.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("after: expected the dtype of before, ",
                                                   DTypeName(before.dtype), ", found ",
                                                   DTypeName(after.dtype)));
  }
  return absl::OkStatus();
}

absl::Status CheckUpdate(const TensorView& before, const TensorView& after,
                         const TensorView& intended, UpdateStats* stats, int threads) {
  int64_t count = 0;
  if (absl::Status status = CheckUpdateTensors(before, after, intended, &count); !status.ok()) {
    return status;
  }
  if (!before.on_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat("before: expected a host tensor, found one on device ", before.device));
  }
  const UpdateReaders readers{RunReader(before), RunReader(after), RunReader(intended),
                              before.dtype, intended.dtype};
  const int64_t blocks = (count + kUpdateBlock - 1) / kUpdateBlock;
  const auto parts =
      static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(blocks, 1)));
  std::vector<UpdateTotals> totals(static_cast<size_t>(parts));
  ParallelParts(blocks, parts, [&](int part, int64_t first, int64_t last) {
    CheckPart(readers, first * kUpdateBlock, std::min(last * kUpdateBlock, count),
              &totals[static_cast<size_t>(part)]);
  });
  for (size_t i = 1; i < totals.size(); ++i) totals[0].Add(totals[i]);
  *stats = totals[0].Finish(static_cast<uint64_t>(count));
  return absl::OkStatus();
}

}  // namespace plumbline
