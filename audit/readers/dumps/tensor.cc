#include "audit/readers/dumps/tensor.h"

#include <algorithm>
#include <array>

#include "audit/readers/dumps/matmul_formats.h"
#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensor_blocks.h"
#include "audit/readers/dumps/tensors.h"
#include "base/parallel.h"
#include "kernels/core/sample_index.h"
#include "kernels/evidence/tensor.h"
#include "kernels/evidence/tensor_state.h"

namespace plumbline::audit {
namespace {

constexpr const char* kValues = "values";
constexpr uint64_t kWholeBytes = uint64_t{1} << 20;
constexpr uint64_t kRowBytes = uint64_t{8} << 20;
constexpr std::string_view kTensorKeys[] = {"role", "target_format", "replicas", "block",
                                            "scale_format"};
constexpr std::string_view kTensorTensors[] = {kValues, kScale, kTensorScale};
constexpr std::array kTensorRoles = {"weight", "gradient", "activation", "probabilities",
                                     "positions"};

// Reads and checks the options.
TensorStateOptions ReadOptions(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  TensorStateOptions options;
  metadata.Choice("role", kTensorRoles, -1);
  options.role = metadata.Text("role");
  // A block-scaled format is not a target format of single values.
  if (!ReadBlocks(header, problems)) options.target_format = metadata.DTypeNamed("target_format");
  options.replicas = metadata.Text("replicas");
  return options;
}

bool LooksLikeTensor(const SafetensorsHeader& header) {
  const size_t scales = static_cast<size_t>(header.Find(kScale) != nullptr) +
                        static_cast<size_t>(header.Find(kTensorScale) != nullptr);
  return header.Find(kValues) != nullptr && header.tensors.size() == 1 + scales;
}

void CheckTensorDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  ReadOptions(header, problems);
  CheckSpelling(header, kTensorKeys, kTensorTensors, problems);
  const TensorEntry* values = header.Find(kValues);
  if (values == nullptr) {
    problems->push_back({0, "expected a tensor values, found none"});
    return;
  }
  CheckDType(*values, Content::kAny, problems);
  CheckBlockScales(header, *values, problems);
  CheckTotalSize({values}, "values", "dump a part of the tensor", problems);
}

std::string TensorOp(const SafetensorsHeader& header) {
  const MetadataEntry* role = header.Metadata("role");
  return role == nullptr ? "tensor" : role->value;
}

// Sets the number of values in the sample.
void SetCap(uint64_t count, uint64_t bytes, TensorStateOptions* options) {
  const bool rows = options->role == "probabilities" || options->role == "positions";
  const uint64_t most = rows ? kRowBytes : kWholeBytes;
  options->max_bytes = kRowBytes;
  if (bytes <= most) {
    options->max_samples = static_cast<uint32_t>(std::max<uint64_t>(count, kMaxSamples));
  } else if (rows) {
    options->max_samples = static_cast<uint32_t>(kRowBytes / (bytes / count));
  }
}

absl::Status LoadTensorDump(const InputFile& file, const SafetensorsHeader& header,
                            v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  TensorStateOptions options = ReadOptions(header, &none);
  v1::Tensor values;
  const std::optional<BlockFormat> blocks = ReadBlocks(header, &none);
  const TensorEntry& entry = *header.Find(kValues);
  const std::string element = blocks ? blocks->element : "";
  if (absl::Status s = LoadFactor(file, entry, element, &values); !s.ok()) return s;
  const absl::StatusOr<TensorView> view = ViewTensor(values, kValues);
  if (!view.ok()) return view.status();
  const std::string run = ReadDumpSite(header, &none).run;
  const auto count = static_cast<uint64_t>(view->elements());
  options.with_sample = true;
  options.key = SampleKey(run, evidence->step(), evidence->site().layer(), evidence->site().op());
  options.threads = ThreadsFor(values.data().size());
  SetCap(count, values.data().size(), &options);
  evidence->set_sample_size(count);
  evidence->set_exercised(v1::EXERCISED_YES);
  absl::Status filled = FillTensorState(*view, options, evidence->mutable_tensor());
  if (!filled.ok()) return filled;
  return LoadBlockFits(file, header, *view, evidence->mutable_tensor());
}

}  // namespace

const DumpKind kTensorDump = {"tensor", LooksLikeTensor, CheckTensorDump, TensorOp, LoadTensorDump};

}  // namespace plumbline::audit
