#include "audit/readers/dumps/logits.h"

#include <array>
#include <limits>
#include <optional>

#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "base/load.h"
#include "base/parallel.h"
#include "kernels/core/sample_index.h"
#include "kernels/evidence/logits.h"
#include "kernels/evidence/tensor.h"

namespace plumbline::audit {
namespace {

constexpr std::array kModes = {"raw_logits", "processed_logits"};
constexpr std::string_view kLogitsKeys[] = {"temperature", "logprob_mode"};
constexpr std::string_view kLogitsTensors[] = {"train", "rollout", "tokens", "labels", "allowed"};

// Reads and checks the configuration.
void ReadLogitsConfig(const SafetensorsHeader& header, std::vector<Problem>* problems,
                      v1::LogitsConfig* config) {
  const DumpMetadata metadata(header, problems);
  if (const MetadataEntry* entry = header.Metadata("temperature")) {
    const double temperature = metadata.Number("temperature", -1);
    if (temperature > 0) {
      config->set_temperature(temperature);
    } else if (temperature != -1 || entry->value == "-1") {
      metadata.Wrong("temperature", *entry, "above 0");
    }
  }
  const int mode = metadata.Choice("logprob_mode", kModes, -1);
  if (mode >= 0) config->set_mode(mode == 0 ? v1::LOGPROB_MODE_RAW : v1::LOGPROB_MODE_PROCESSED);
}

bool LooksLikeLogits(const SafetensorsHeader& header) {
  return header.Find("train") != nullptr && header.Find("rollout") != nullptr;
}

void CheckLogitDType(const TensorEntry& tensor, std::vector<Problem>* problems) {
  const DType t = tensor.dtype;
  if (t == DType::kF32 || t == DType::kF16 || t == DType::kBF16) return;
  problems->push_back({tensor.declared_at, "expected " + tensor.name +
                                               " as F32, F16 or BF16, found " + tensor.dtype_name});
}

void CheckLogitsDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  v1::LogitsConfig config;
  ReadLogitsConfig(header, problems, &config);
  CheckSpelling(header, kLogitsKeys, kLogitsTensors, problems);
  const TensorEntry* train = header.Find("train");
  const TensorEntry* rollout = header.Find("rollout");
  for (const char* name : {"train", "rollout"}) {
    const TensorEntry* tensor = header.Find(name);
    if (tensor != nullptr) {
      CheckLogitDType(*tensor, problems);
    } else {
      problems->push_back(
          {0, std::string("expected a tensor ") + name + " of shape [T,V], found none"});
    }
  }
  const TensorEntry* allowed = header.Find("allowed");
  for (const char* name : {"tokens", "labels"}) {
    if (const TensorEntry* ids = header.Find(name)) CheckDType(*ids, Content::kInteger, problems);
  }
  if (allowed != nullptr) CheckDType(*allowed, Content::kMask, problems);
  if (train == nullptr) return;
  if (train->shape.size() != 2 || train->shape[1] < 1 ||
      train->shape[1] > std::numeric_limits<int32_t>::max()) {
    problems->push_back({train->declared_at, "expected train of shape [T,V], V at least 1, found " +
                                                 ShapeText(train->shape)});
    return;
  }
  for (const TensorEntry* tensor : {rollout, allowed}) {
    if (tensor != nullptr) CheckShape(*tensor, "[T,V]", train->shape, problems);
  }
  for (const char* name : {"tokens", "labels"}) {
    if (const TensorEntry* ids = header.Find(name))
      CheckShape(*ids, "[T]", {train->shape[0]}, problems);
  }
  CheckTotalSize({train, rollout, allowed}, "logits", "dump fewer rows per file", problems);
}

std::string LogitsOp(const SafetensorsHeader& /*header*/) { return "logits"; }

// Owns the dump's tensors while the views are used.
class LogitsTensors {
 public:
  absl::Status Load(const InputFile& file, const SafetensorsHeader& header) {
    for (size_t i = 0; i < kCount; ++i) {
      const TensorEntry* entry = header.Find(kLogitsTensors[i]);
      if (entry == nullptr) continue;
      if (absl::Status s = LoadTensor(file, *entry, &tensors_[i]); !s.ok()) return s;
      const absl::StatusOr<TensorView> view = ViewTensor(tensors_[i], kLogitsTensors[i]);
      if (!view.ok()) return view.status();
      views_[i] = *view;
    }
    return absl::OkStatus();
  }

  // Chooses the rows with a label; a label is the token sampled there.
  absl::Status ChooseRows(const SafetensorsHeader& header) {
    const TensorView& labels = views_[kLabels];
    if (!labels.present()) return absl::OkStatus();
    rows_.emplace();
    const TensorView& tokens = views_[kTokens];
    const TensorEntry& entry = *header.Find("labels");
    for (int64_t i = 0; i < labels.shape[0]; ++i) {
      const int64_t label = Int64At(labels, i);
      if (label < 0) continue;
      rows_->push_back(static_cast<uint64_t>(i));
      if (!tokens.present() || Int64At(tokens, i) == label) continue;
      return AtByte(absl::InvalidArgumentError(
                        "expected labels that are tokens, or below 0 for excluded rows, found " +
                        std::to_string(label) + " for token " + std::to_string(Int64At(tokens, i)) +
                        " in row " + std::to_string(i)),
                    entry.begin + static_cast<uint64_t>(i) * DTypeSize(entry.dtype));
    }
    return absl::OkStatus();
  }

  LogitInput Input() const {
    const bool named = views_[kTokens].present();
    return {views_[0], views_[1], views_[named ? kTokens : kLabels], views_[kAllowed]};
  }
  const std::optional<std::vector<uint64_t>>& rows() const { return rows_; }

 private:
  static constexpr size_t kCount = std::size(kLogitsTensors);
  static constexpr size_t kTokens = 2, kLabels = 3, kAllowed = 4;

  v1::Tensor tensors_[kCount];
  TensorView views_[kCount];
  std::optional<std::vector<uint64_t>> rows_;
};

absl::Status LoadLogitsDump(const InputFile& file, const SafetensorsHeader& header,
                            v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  LogitsTensors tensors;
  absl::Status s = tensors.Load(file, header);
  if (s.ok()) s = tensors.ChooseRows(header);
  if (!s.ok()) return s;
  const LogitInput input = tensors.Input();
  LogitOptions options;
  if (tensors.rows()) options.rows = *tensors.rows();
  options.max_rows = kMaxSamples;
  options.key = SampleKey(ReadDumpSite(header, &none).run, evidence->step(),
                          evidence->site().layer(), evidence->site().op());
  options.threads = ThreadsFor(header.Find("train")->bytes());
  v1::Logits& logits = *evidence->mutable_logits();
  if (s = FillLogits(input, options, &logits); !s.ok()) return s;
  ReadLogitsConfig(header, &none, logits.mutable_config());
  const auto rows = static_cast<uint64_t>(header.Find("train")->shape[0]);
  if (rows > logits.summary().rows()) logits.mutable_summary()->set_rows_seen(rows);
  evidence->set_sample_size(logits.summary().rows());
  evidence->set_exercised(logits.summary().rows() > 0 ? v1::EXERCISED_YES : v1::EXERCISED_NO);
  return absl::OkStatus();
}

}  // namespace

const DumpKind kLogitsDump = {"logits", LooksLikeLogits, CheckLogitsDump, LogitsOp, LoadLogitsDump};

}  // namespace plumbline::audit
