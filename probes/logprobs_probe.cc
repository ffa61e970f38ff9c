#include "probes/logprobs_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/load.h"
#include "kernels/core/sample_index.h"
#include "kernels/core/strided.h"
#include "kernels/evidence/sample.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/measure.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

struct Column {
  const char* name;
  const TensorView* view;
  Content content;
  bool per_sequence;  // may be [B] if others are [B,S]
};

std::array<Column, 17> Columns(const LogprobsCall& c) {
  return {{{"tokens", &c.tokens, Content::kInteger, false},
           {"sequence_id", &c.sequence_id, Content::kInteger, true},
           {"position", &c.position, Content::kInteger, false},
           {"mask", &c.mask, Content::kNumber, false},
           {"rollout", &c.rollout, Content::kFloating, false},
           {"train", &c.train, Content::kFloating, false},
           {"rollout_entropy", &c.rollout_entropy, Content::kFloating, false},
           {"rollout_varentropy", &c.rollout_varentropy, Content::kFloating, false},
           {"train_entropy", &c.train_entropy, Content::kFloating, false},
           {"train_varentropy", &c.train_varentropy, Content::kFloating, false},
           {"versions", &c.versions, Content::kInteger, false},
           {"advantages", &c.advantages, Content::kFloating, true},
           {"turns", &c.turns, Content::kInteger, false},
           {"cached_tokens", &c.cached_tokens, Content::kInteger, true},
           {"t_start", &c.t_start, Content::kFloating, true},
           {"t_end", &c.t_end, Content::kFloating, true},
           {"behaviour", &c.behaviour, Content::kFloating, false}}};
}

const TensorView& Reference(const LogprobsCall& c) {
  return c.rollout.present() ? c.rollout : c.train;
}

bool OnePerRow(const TensorView& view, const TensorView& reference) {
  return reference.rank == 2 && view.rank == 1 && view.shape[0] == reference.shape[0];
}

absl::Status CheckColumns(const LogprobsCall& call) {
  const TensorView& reference = Reference(call);
  for (const Column& column : Columns(call)) {
    if (!column.view->present()) continue;
    absl::Status s = CheckTensor(column.name, *column.view, column.content, Place::kAny);
    if (s.ok()) {
      s = CheckSamePlace(column.name, *column.view, call.rollout.present() ? "rollout" : "train",
                         reference.device);
    }
    if (!s.ok()) return s;
    if (SameShape(*column.view, reference)) continue;
    if (column.per_sequence && OnePerRow(*column.view, reference)) continue;
    return Expected(column.name, *column.view,
                    "the shape of the log-probabilities, " + Describe(reference));
  }
  return absl::OkStatus();
}

struct LogprobsParts {
  struct Fields {
    LogprobsCall::Fields of_call;
    uint64_t key, threshold;
  };
  explicit LogprobsParts(const CarriedLogprobs& carried)
      : fields{carried.call.fields, carried.key, carried.threshold}, texts{carried.call.worker} {
    const auto columns = Columns(carried.call);
    for (size_t i = 0; i < columns.size(); ++i) tensors[i] = *columns[i].view;
    all = {std::as_bytes(std::span(&fields, 1)), texts, tensors};
  }
  Fields fields;
  std::array<std::string_view, 1> texts;
  std::array<TensorView, 17> tensors;
  CallParts all;
};

absl::Status CheckChoice(const char* name, int32_t value, bool valid) {
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " = " + std::to_string(value) +
                                    ": expected one of its enumeration");
}

// Reads one column by the row's number in C order.
class RowReader {
 public:
  RowReader(const TensorView& view, const TensorView& reference)
      : view_(view),
        axes_(view.present() ? AxesOf(view) : StridedAxes()),
        columns_(view.present() && OnePerRow(view, reference) ? reference.shape[1] : 1) {}
  int64_t Integer(int64_t row) const {
    return LoadInt64(view_.data, view_.dtype, axes_.Offset(row / columns_));
  }
  double Number(int64_t row) const {
    return LoadDouble(view_.data, view_.dtype, axes_.Offset(row / columns_));
  }

 private:
  const TensorView& view_;
  StridedAxes axes_;
  int64_t columns_;
};

struct Rows {
  int64_t id = 0;
  std::vector<uint64_t> at;  // in C order
};

// Returns the kept sequences, by their first rows, and counts all.
std::vector<Rows> Choose(const LogprobsCall& call, uint64_t key, uint64_t threshold,
                         v1::Logprobs* counts) {
  const TensorView& reference = Reference(call);
  const RowReader ids(call.sequence_id, reference);
  std::vector<Rows> kept;
  std::map<int64_t, int64_t> number;  // id: index in `kept`, -1: not kept
  int64_t last_id = -1, last = -1;
  uint64_t tokens = 0;
  for (int64_t row = 0, n = reference.elements(); row < n; ++row) {
    const int64_t id = ids.Integer(row);
    if (id < 0) continue;
    ++tokens;
    if (id != last_id) {
      const auto [place, fresh] = number.try_emplace(id, -1);
      if (fresh && SequenceHash(key, id) <= threshold) {
        place->second = static_cast<int64_t>(kept.size());
        kept.push_back({id, {}});
      }
      last_id = id;
      last = place->second;
    }
    if (last >= 0) kept[static_cast<size_t>(last)].at.push_back(static_cast<uint64_t>(row));
  }
  counts->set_sequences_seen(number.size());
  counts->set_tokens_seen(tokens);
  return kept;
}

void FillFields(const LogprobsCall& call, v1::LogprobsSequence* out) {
  const LogprobsCall::Fields& f = call.fields;
  out->set_mode(static_cast<v1::LogprobMode>(f.mode));
  out->set_selection(static_cast<v1::LogprobsSequence::Selection>(f.selection));
  out->set_source(static_cast<v1::LogprobsSequence::Source>(f.source));
  if (!std::isnan(f.temperature)) out->set_temperature(f.temperature);
  if (!std::isnan(f.top_p)) out->set_top_p(f.top_p);
  if (!std::isnan(f.kept_share)) out->set_kept_share(f.kept_share);
  if (!std::isnan(f.rescore_k2)) out->set_rescore_k2(f.rescore_k2);
  if (f.top_k >= 0) out->set_top_k(f.top_k);
  if (f.train_version >= 0) out->set_train_version(f.train_version);
  out->set_worker(std::string(call.worker));
}

class Filler {
 public:
  Filler(const LogprobsCall& call, const Rows& rows) : call_(call), rows_(rows) {}

  absl::Status Fill(v1::LogprobsSequence* out) {
    out->set_id(std::to_string(rows_.id));
    out->set_length(rows_.at.size());
    FillFields(call_, out);
    FillPositions(out);
    Put(call_.tokens, [&] { return out->mutable_tokens(); });
    Put(call_.versions, [&] { return out->mutable_weight_versions(); });
    Put(call_.advantages, [&] { return out->mutable_advantages(); });
    Put(call_.turns, [&] { return out->mutable_turns(); });
    FillMask(out);
    FillOnce(out);
    Side(call_.rollout, call_.rollout_entropy, call_.rollout_varentropy,
         [&] { return out->mutable_rollout(); });
    Side(call_.train, call_.train_entropy, call_.train_varentropy,
         [&] { return out->mutable_train(); });
    Side(call_.behaviour, {}, {}, [&] { return out->mutable_behaviour(); });
    return status_;
  }

 private:
  template <typename Make>
  void Put(const TensorView& view, Make make) {
    if (!view.present() || !status_.ok()) return;
    if (!OnePerRow(view, Reference(call_))) {
      status_ = PackSamples(view, rows_.at, make());
      return;
    }
    const auto columns = static_cast<uint64_t>(Reference(call_).shape[1]);
    std::vector<uint64_t> at(rows_.at);
    for (uint64_t& row : at) row /= columns;
    status_ = PackSamples(view, at, make());
  }

  template <typename Make>
  void Side(const TensorView& logprobs, const TensorView& entropy, const TensorView& varentropy,
            Make make) {
    if (!logprobs.present()) return;
    v1::LogprobsSide* side = make();
    Put(logprobs, [&] { return side->mutable_logprobs(); });
    Put(entropy, [&] { return side->mutable_entropy(); });
    Put(varentropy, [&] { return side->mutable_varentropy(); });
  }

  // Filled only if they are not consecutive; without a column, rows of a sequence are.
  void FillPositions(v1::LogprobsSequence* out) {
    if (!call_.position.present()) return;
    const RowReader positions(call_.position, Reference(call_));
    const int64_t first = positions.Integer(static_cast<int64_t>(rows_.at[0]));
    bool consecutive = true;
    for (size_t i = 0; i < rows_.at.size(); ++i)
      consecutive = consecutive && positions.Integer(static_cast<int64_t>(rows_.at[i])) ==
                                       first + static_cast<int64_t>(i);
    if (consecutive) {
      out->set_first_position(first);
    } else {
      Put(call_.position, [&] { return out->mutable_positions(); });
    }
  }

  // Fills the values that a sequence has once: those of its first row.
  void FillOnce(v1::LogprobsSequence* out) {
    const TensorView& reference = Reference(call_);
    const auto first = static_cast<int64_t>(rows_.at[0]);
    if (call_.cached_tokens.present())
      out->set_cached_tokens(RowReader(call_.cached_tokens, reference).Integer(first));
    if (call_.t_start.present())
      out->set_t_start(RowReader(call_.t_start, reference).Number(first));
    if (call_.t_end.present()) out->set_t_end(RowReader(call_.t_end, reference).Number(first));
  }

  void FillMask(v1::LogprobsSequence* out) {
    if (!call_.mask.present()) return;
    const StridedAxes axes = AxesOf(call_.mask);
    for (const uint64_t row : rows_.at) {
      const double x =
          LoadDouble(call_.mask.data, call_.mask.dtype, axes.Offset(static_cast<int64_t>(row)));
      out->mutable_mask()->push_back(x != 0 ? 1 : 0);
    }
  }

  const LogprobsCall& call_;
  const Rows& rows_;
  absl::Status status_;
};

}  // namespace

absl::Status CheckCall(const LogprobsCall& call) {
  if (!call.rollout.present() && !call.train.present())
    return absl::InvalidArgumentError("rollout and train: expected at least one of them");
  const TensorView& reference = Reference(call);
  if (reference.rank != 1 && reference.rank != 2)
    return Expected(call.rollout.present() ? "rollout" : "train", reference, "[T] or [B,S]");
  if (!call.sequence_id.present())
    return absl::InvalidArgumentError(
        "sequence_id: required, the same number for a sequence on both sides");
  const LogprobsCall::Fields& f = call.fields;
  absl::Status s = CheckText("worker", call.worker);
  if (s.ok()) s = CheckChoice("mode", f.mode, v1::LogprobMode_IsValid(f.mode));
  if (s.ok())
    s = CheckChoice("selection", f.selection, v1::LogprobsSequence::Selection_IsValid(f.selection));
  if (s.ok()) s = CheckChoice("source", f.source, v1::LogprobsSequence::Source_IsValid(f.source));
  return s.ok() ? CheckColumns(call) : s;
}

int DeviceOf(const LogprobsCall& call) {
  return Reference(call).on_host() ? -1 : Reference(call).device;
}

size_t SlotBytes(const CarriedLogprobs& carried) { return CallBytes(LogprobsParts(carried).all); }

void StoreCall(const CarriedLogprobs& carried, std::byte* slot) {
  StoreCall(LogprobsParts(carried).all, slot);
}

CarriedLogprobs LoadLogprobs(const std::byte* slot) {
  CallReader reader(slot);
  CarriedLogprobs carried;
  const auto fields = reader.fields<LogprobsParts::Fields>();
  carried.call.fields = fields.of_call;
  carried.key = fields.key;
  carried.threshold = fields.threshold;
  carried.call.worker = reader.NextText();
  for (const Column& column : Columns(carried.call))
    *const_cast<TensorView*>(column.view) = reader.NextTensor();  // views of our own call
  return carried;
}

bool Carry(const CarriedLogprobs& carried, std::vector<CarriedCopy>* copies) {
  return CarryTensors(LogprobsParts(carried).all, copies);
}

uint64_t ColumnBytes(const LogprobsCall& call) {
  uint64_t bytes = 0;
  for (const Column& column : Columns(call))
    if (column.view->present()) bytes += Elements(*column.view) * DTypeSize(column.view->dtype);
  return bytes;
}

uint64_t LogprobsBudget::Threshold(int64_t step, uint64_t bytes, uint64_t per_step) {
  const int64_t last = last_step_.exchange(step, std::memory_order_relaxed);
  if (last >= 0 && step > last) {
    const auto steps = std::min<int64_t>(step - last, 1024);
    credit_.fetch_add(steps * static_cast<int64_t>(per_step), std::memory_order_relaxed);
  }
  const int64_t credit = credit_.load(std::memory_order_relaxed);
  if (credit <= 0 || bytes == 0) return 0;
  const double share = static_cast<double>(credit) / static_cast<double>(bytes);
  // Several calls share a burst; a step's budget goes to this call completely.
  credit_.fetch_sub(static_cast<int64_t>(std::min(share, 1.0) * static_cast<double>(bytes)),
                    std::memory_order_relaxed);
  if (share >= 1) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(std::ldexp(share, 64));
}

uint64_t SequenceHash(uint64_t key, int64_t id) {
  return internal::Mix64(key ^ internal::Mix64(static_cast<uint64_t>(id) + 1));
}

absl::Status Measure(const LogprobsCall& call, uint64_t key, uint64_t threshold,
                     v1::Evidence* out) {
  v1::Logprobs* logprobs = out->mutable_logprobs();
  const std::vector<Rows> kept = Choose(call, key, threshold, logprobs);
  uint64_t tokens = 0;
  for (const Rows& rows : kept) {
    if (absl::Status s = Filler(call, rows).Fill(logprobs->add_sequences()); !s.ok()) return s;
    tokens += rows.at.size();
  }
  out->set_sample_size(tokens);
  out->set_exercised(v1::EXERCISED_YES);
  if (kept.empty() && logprobs->sequences_seen() > 0)
    logprobs->set_no_sample_reason("no sequence's turn within the traffic budget");
  return absl::OkStatus();
}

}  // namespace plumbline::probes
