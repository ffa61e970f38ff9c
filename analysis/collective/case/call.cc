#include "analysis/collective/case/call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "analysis/sample/sample.h"
#include "base/load.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

using Call = v1::ReductionCall;

// ---- decoding ----

class Decoder {
 public:
  Decoder(const JoinedReduction& joined, bool compressed_too)
      : joined_(joined), compressed_too_(compressed_too) {}

  absl::StatusOr<ReductionCase> Run() {
    if (absl::Status status = CheckJoin(); !status.ok()) return status;
    if (absl::Status status = CheckOp(); !status.ok()) return status;
    const bool whole = HoldsAllRanks(First());
    if (absl::Status status = whole ? LoadWhole() : LoadRanks(); !status.ok()) return status;
    if (absl::Status status = Describe(); !status.ok()) return status;
    return std::move(c_);
  }

 private:
  const v1::Reduction& First() const { return joined_.items[0].evidence->reduction(); }

  absl::Status CheckJoin() const {
    if (!joined_.ambiguous.empty()) return Cannot(joined_.ambiguous);
    const std::vector<ReductionMismatch> mismatches = FindMismatches(joined_);
    if (!mismatches.empty()) {
      return Cannot(absl::StrCat("ranks-disagree: the ranks of ", GroupWords(joined_.group),
                                 " differ in ", mismatches[0].what,
                                 " (see precision/collective-mismatch)"));
    }
    if (joined_.missing_count > 0) {
      return Cannot(
          absl::StrCat("missing-ranks: ", RankWords(joined_.missing, joined_.missing_count), " of ",
                       GroupWords(joined_.group), " did not report this call"));
    }
    if (!joined_.sampleless.empty()) {
      const std::string& why = First().no_sample_reason();
      return Cannot(absl::StrCat("no-sample: ", RankWords(joined_.sampleless),
                                 " reported no sample of this call",
                                 why.empty() ? "" : ": " + why));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOp() {
    c_.op = First().call().op();
    if (c_.op == Call::OP_UNSPECIFIED) {
      c_.op = Call::OP_SUM;
      c_.assumptions.push_back("the collective is a sum (its operation was not recorded)");
    }
    const std::string& algorithm = First().call().algorithm();
    if (IsCompression(algorithm) && !compressed_too_)
      return Cannot(absl::StrCat("compressed: ", algorithm,
                                 " sends less than the full values, by design; single steps are "
                                 "not sums, so the omitted part is judged over several steps"));
    if (c_.op == Call::OP_SUM || c_.op == Call::OP_AVG) return absl::OkStatus();
    return Cannot("not-a-sum: the operation is neither a sum nor an average");
  }

  absl::Status LoadWhole() {
    const v1::ReductionSample& sample = First().sample();
    if (sample.inputs().shape(0) < 1 || sample.inputs().shape(1) < 0)
      return Cannot("bad-tensor: inputs: expected shape [N, m], found " +
                    ShapeText(sample.inputs()));
    if (absl::Status s = SetSize(sample.inputs().shape(0), sample.inputs().shape(1)); !s.ok())
      return s;
    const uint32_t stated = First().call().group_size();
    if (stated > 0 && stated != static_cast<uint32_t>(c_.ranks))
      return Cannot(absl::StrCat("bad-tensor: inputs: expected a row for each of the ", stated,
                                 " ranks of the group, found ", ShapeText(sample.inputs())));
    if (absl::Status s = CheckTensor("inputs", sample.inputs(), {c_.ranks, recorded_}, true);
        !s.ok())
      return s;
    c_.input_dtype = static_cast<DType>(sample.inputs().dtype());
    const bool each = sample.output().shape_size() == 2;
    const std::vector<int64_t> shape =
        each ? std::vector<int64_t>{c_.ranks, recorded_} : std::vector<int64_t>{recorded_};
    if (absl::Status s = CheckTensor("output", sample.output(), shape, true); !s.ok()) return s;
    c_.output_dtype = static_cast<DType>(sample.output().dtype());
    Pick(sample.output());
    for (int r = 0; r < c_.ranks; ++r) Append(sample.inputs(), r, c_.inputs);
    Append(sample.output(), 0, c_.output);
    for (int r = 1; each && r < c_.ranks; ++r)
      CompareOutputs(sample.output(), r, sample.output(), static_cast<uint32_t>(r));
    if (each) CountResults();
    return LoadOffsets(sample);
  }

  absl::Status LoadRanks() {
    const v1::ReductionSample& first = First().sample();
    const int64_t m = first.inputs().shape_size() == 1 ? first.inputs().shape(0) : -1;
    if (m < 0)
      return Cannot("bad-tensor: inputs: expected shape [m], found " + ShapeText(first.inputs()));
    if (absl::Status s = SetSize(static_cast<int64_t>(joined_.items.size()), m); !s.ok()) return s;
    for (size_t i = 0; i < joined_.items.size(); ++i) {
      if (absl::Status s = CheckRank(i); !s.ok()) return s;
    }
    if (result_ < 0) return Cannot("no-result: no rank recorded the result");
    const v1::ReductionSample& result = SampleOf(static_cast<size_t>(result_));
    c_.output_dtype = static_cast<DType>(result.output().dtype());
    c_.output_rank = joined_.items[static_cast<size_t>(result_)].source->rank();
    Pick(result.output());
    Append(result.output(), 0, c_.output);
    for (size_t i = 0; i < joined_.items.size(); ++i) {
      if (absl::Status s = LoadRank(i, result); !s.ok()) return s;
    }
    CountResults();
    return LoadOffsets(first);
  }

  const v1::ReductionSample& SampleOf(size_t i) const {
    return joined_.items[i].evidence->reduction().sample();
  }

  // A reduction to one rank, or a part of a scattered reduction, has its result only on that rank.
  absl::Status CheckRank(size_t i) {
    const v1::ReductionSample& sample = SampleOf(i);
    const std::string name = absl::StrCat("inputs of rank ", joined_.items[i].source->rank());
    if (absl::Status s = CheckTensor(name.c_str(), sample.inputs(), {recorded_}, true); !s.ok())
      return s;
    if (!sample.has_output()) return absl::OkStatus();
    if (absl::Status s = CheckTensor("output", sample.output(), {recorded_}, true); !s.ok())
      return s;
    if (result_ < 0) result_ = static_cast<int64_t>(i);
    return absl::OkStatus();
  }

  absl::Status LoadRank(size_t i, const v1::ReductionSample& result) {
    const v1::ReductionSample& sample = SampleOf(i);
    const uint32_t rank = joined_.items[i].source->rank();
    const auto in = static_cast<DType>(sample.inputs().dtype());
    const bool other_out =
        sample.has_output() && static_cast<DType>(sample.output().dtype()) != c_.output_dtype;
    if (other_out || (i > 0 && in != c_.input_dtype))
      return Cannot(absl::StrCat("bad-tensor: rank ", rank, " recorded a different dtype"));
    if (i > 0 && !SameOffsets(sample, First().sample()))
      return Cannot(absl::StrCat("offsets-differ: rank ", rank, " sampled different elements"));
    c_.input_dtype = in;
    held_ += sample.has_output() ? 1 : 0;
    if (sample.has_output() && static_cast<int64_t>(i) != result_)
      CompareOutputs(sample.output(), 0, result.output(), rank);
    Append(sample.inputs(), 0, c_.inputs);
    return absl::OkStatus();
  }

  static bool SameOffsets(const v1::ReductionSample& a, const v1::ReductionSample& b) {
    return a.has_offsets() == b.has_offsets() && a.offsets().dtype() == b.offsets().dtype() &&
           a.offsets().data() == b.offsets().data();
  }

  absl::Status SetSize(int64_t ranks, int64_t samples) {
    constexpr int64_t kMostRanks = 1 << 17;
    constexpr int64_t kMostValues = int64_t{1} << 28;
    if (ranks < 2) {
      return Cannot("one-rank: values of a single rank were recorded, so there is no sum");
    }
    if (samples == 0) return Cannot("no-samples: the sample is empty");
    if (ranks > kMostRanks || samples > kMostValues / ranks)
      return Cannot("too-large: the sample has more values than the replay limit");
    c_.ranks = static_cast<int>(ranks);
    recorded_ = samples;
    return absl::OkStatus();
  }

  // Picks the columns to judge. If there are many, picks one in each of 4,096 equal stretches
  // (fewer if there are many ranks), and all columns whose output is not finite.
  void Pick(const v1::Tensor& output) {
    const int64_t kMost = std::clamp<int64_t>(kMostHeld / c_.ranks, 256, 4096);
    constexpr int kMostNonFinite = 64;
    const auto dtype = static_cast<DType>(output.dtype());
    const int64_t m = recorded_;
    int non_finite = 0;
    for (int64_t i = 0; m > kMost && i < m && non_finite < kMostNonFinite; ++i) {
      if (std::isfinite(LoadDouble(output.data().data(), dtype, i))) continue;
      picks_.push_back(i);
      ++non_finite;
    }
    for (int64_t i = 0; i < std::min(m, kMost); ++i) {
      const int64_t first = m <= kMost ? i : i * m / kMost;
      const int64_t next = m <= kMost ? i + 1 : (i + 1) * m / kMost;
      const uint64_t mixed = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull >> 32;
      picks_.push_back(first + static_cast<int64_t>(mixed % static_cast<uint64_t>(next - first)));
    }
    if (m > kMost) {
      std::sort(picks_.begin(), picks_.end());
      picks_.erase(std::unique(picks_.begin(), picks_.end()), picks_.end());
    }
    c_.samples = static_cast<int>(picks_.size());
  }

  // Appends the picked columns of one row.
  void Append(const v1::Tensor& tensor, int64_t row, std::vector<double>& to) const {
    const auto dtype = static_cast<DType>(tensor.dtype());
    for (const int64_t i : picks_)
      to.push_back(LoadDouble(tensor.data().data(), dtype, row * recorded_ + i));
  }

  // Compares every recorded column of a row with the first row of `first`.
  void CompareOutputs(const v1::Tensor& other, int64_t row, const v1::Tensor& first,
                      uint32_t rank) {
    const auto dtype = static_cast<DType>(other.dtype());
    const size_t bytes = static_cast<size_t>(recorded_) * DTypeSize(dtype);
    const char* mine = other.data().data() + static_cast<size_t>(row) * bytes;
    if (std::memcmp(mine, first.data().data(), bytes) == 0) return;
    for (int64_t i = 0; i < recorded_; ++i) {
      if (SameResult(LoadDouble(mine, dtype, i), LoadDouble(first.data().data(), dtype, i)))
        continue;
      c_.differing_ranks.push_back(rank);
      c_.first_difference = c_.first_difference < 0 ? i : std::min(c_.first_difference, i);
      ++results_[std::string_view(mine, bytes)];
      if (c_.others.size() == ReductionCase::kMostOthers) return;
      c_.others.push_back({rank, {}});
      Append(other, row, c_.others.back().values);
      bytes_of_others_.emplace_back(mine, bytes);
      return;
    }
  }

  // Finds the result that a strict majority of the ranks has.
  void CountResults() {
    const size_t ranks = held_ > 0 ? held_ : static_cast<size_t>(c_.ranks);
    c_.output_majority = ranks > 1 && 2 * (ranks - c_.differing_ranks.size()) > ranks;
    for (size_t i = 0; i < c_.others.size() && c_.majority < 0; ++i) {
      if (2 * results_[bytes_of_others_[i]] > ranks) c_.majority = static_cast<int>(i);
    }
  }

  absl::Status LoadOffsets(const v1::ReductionSample& sample) {
    const Call& call = First().call();
    c_.count = call.count();
    c_.count_given = c_.count > 0;
    c_.offsets_given = sample.has_offsets();
    c_.offsets.resize(static_cast<size_t>(c_.samples));
    if (!c_.offsets_given) {
      for (size_t i = 0; i < picks_.size(); ++i) c_.offsets[i] = static_cast<uint64_t>(picks_[i]);
      if (!c_.count_given) {
        c_.count = static_cast<uint64_t>(recorded_);
        c_.assumptions.push_back(
            "the whole buffer was recorded (neither its count nor offsets of elements were)");
      }
    } else {
      if (absl::Status s = CheckTensor("offsets", sample.offsets(), {recorded_}, false); !s.ok())
        return s;
      std::vector<int64_t> offsets(static_cast<size_t>(recorded_));
      ReadIntegers(sample.offsets(), 0, recorded_, offsets.data());
      for (size_t i = 0; i < offsets.size(); ++i) {
        const bool beyond = c_.count > 0 && static_cast<uint64_t>(offsets[i]) >= c_.count;
        if (offsets[i] < 0 || beyond) return OutOfRange(offsets[i], i);
      }
      for (size_t i = 0; i < picks_.size(); ++i)
        c_.offsets[i] = static_cast<uint64_t>(offsets[static_cast<size_t>(picks_[i])]);
    }
    if (c_.count > 0 && static_cast<uint64_t>(recorded_) > c_.count)
      return Cannot(absl::StrCat("count-too-small: expected a count of at least the ", recorded_,
                                 " samples, found ", c_.count));
    return absl::OkStatus();
  }

  absl::Status OutOfRange(int64_t offset, size_t i) const {
    return Cannot(absl::StrCat("offset-out-of-range: expected offsets from 0 to count - 1, found ",
                               offset, " at sample ", i, " (count ", c_.count, ")"));
  }

  absl::Status Describe() {
    const Call& call = First().call();
    const auto wire = static_cast<DType>(call.wire_dtype());
    c_.wire_declared = IsFloating(wire);
    if (call.wire_dtype() != v1::DTYPE_UNSPECIFIED && !c_.wire_declared)
      return Cannot("integer-wire: integer sums are exact");
    c_.wire_dtype = c_.wire_declared ? wire : c_.input_dtype;
    // Above these limits a buffer does not fit in any memory, and the numbers of its elements do
    // not fit in 64 bits.
    if (c_.count > kMostCount)
      return Cannot(
          absl::StrCat("bad-count: expected at most ", kMostCount, " elements, found ", c_.count));
    if (call.channels() > kMostChannels)
      return Cannot(absl::StrCat("bad-channels: expected at most ", kMostChannels,
                                 " channels, found ", call.channels()));
    c_.channels = call.channels();
    c_.chunk = call.chunk();
    c_.algorithm = call.algorithm();
    c_.transport = call.transport();
    return TakeRingOrder(call);
  }

  // Reads a permutation of the group ranks, or one for each channel.
  absl::Status TakeRingOrder(const Call& call) {
    const auto n = static_cast<size_t>(c_.ranks);
    const auto given = static_cast<size_t>(call.ring_order_size());
    if (given == 0) return absl::OkStatus();
    if (given % n != 0) {
      return Cannot(absl::StrCat("bad-ring-order: expected the ", n, " ranks of the group, found ",
                                 given, " entries"));
    }
    for (size_t at = 0; at < given; at += n) {
      std::vector<bool> seen(n);
      for (size_t i = at; i < at + n; ++i) {
        const uint32_t rank = call.ring_order(static_cast<int>(i));
        if (rank >= n || seen[rank]) {
          return Cannot(absl::StrCat("bad-ring-order: expected each rank from 0 to ", n - 1,
                                     " once, found ", rank, rank >= n ? "" : " twice"));
        }
        seen[rank] = true;
      }
    }
    c_.ring_order.assign(call.ring_order().begin(), call.ring_order().end());
    return absl::OkStatus();
  }

  static constexpr int64_t kMostHeld = 1 << 24;  // limit of values of the judged columns
  static constexpr uint64_t kMostCount = uint64_t{1} << 44;
  static constexpr uint32_t kMostChannels = 1 << 10;

  const JoinedReduction& joined_;
  const bool compressed_too_;
  ReductionCase c_;
  int64_t recorded_ = 0;        // number of samples in the record
  int64_t result_ = -1;         // index of the first item that has an output
  size_t held_ = 0;             // number of items with an output
  std::vector<int64_t> picks_;  // sample numbers that are judged
  std::map<std::string_view, size_t>
      results_;  // number of ranks for each result that differs from the first
  std::vector<std::string_view> bytes_of_others_;
};

}  // namespace

bool IsCompression(std::string_view algorithm) {
  static constexpr std::string_view kWords[] = {"powersgd", "onebit",     "1bit",
                                                "topk",     "int8scaled", "fp8scaled"};
  std::string plain;
  for (const char letter : algorithm) {
    if (letter != '-' && letter != '_' && letter != ' ') plain += absl::ascii_tolower(letter);
  }
  return std::find(std::begin(kWords), std::end(kWords), plain) != std::end(kWords);
}

absl::StatusOr<ReductionCase> DecodeReduction(const JoinedReduction& joined, bool compressed_too) {
  return Decoder(joined, compressed_too).Run();
}

DType ReductionFrame::result_dtype() const {
  return FormatOf(output_dtype).precision < FormatOf(wire_dtype).precision ? output_dtype
                                                                           : wire_dtype;
}

}  // namespace plumbline::analysis
