#include "audit/readers/dumps/update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "base/parallel.h"
#include "kernels/core/sample_index.h"
#include "kernels/evidence/tensor.h"
#include "kernels/evidence/update.h"

namespace plumbline::audit {
namespace {

struct UpdatePart {
  const char* name;
  bool required;
  TensorView UpdateInput::*view;
};

constexpr UpdatePart kUpdateParts[] = {
    {"before", true, &UpdateInput::before},
    {"after", true, &UpdateInput::after},
    {"intended", true, &UpdateInput::intended},
    {"gradient", false, &UpdateInput::gradient},
    {"moment_before", false, &UpdateInput::moment_before},
    {"moment_after", false, &UpdateInput::moment_after},
};
constexpr uint64_t kWholeUpdateBytes = uint64_t{1} << 20;
constexpr std::string_view kUpdateKeys[] = {"optimizer", "lr",    "beta2",
                                            "eps",       "decay", "eps_dtype"};
constexpr std::string_view kUpdateTensors[] = {"before",   "after",         "intended",
                                               "gradient", "moment_before", "moment_after"};

// Reads and checks the configuration.
v1::UpdateConfig ReadUpdateConfig(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  v1::UpdateConfig config;
  config.set_optimizer(metadata.Text("optimizer"));
  config.set_lr(metadata.Number("lr", NAN));
  config.set_beta2(metadata.Number("beta2", NAN));
  config.set_eps(metadata.Number("eps", NAN));
  config.set_decay(metadata.Number("decay", NAN));
  config.set_eps_dtype(static_cast<v1::DType>(metadata.DTypeNamed("eps_dtype")));
  return config;
}

bool LooksLikeUpdate(const SafetensorsHeader& header) {
  return header.Find("before") != nullptr && header.Find("after") != nullptr &&
         header.Find("intended") != nullptr;
}

void CheckSameDType(const SafetensorsHeader& header, const char* name, const char* other,
                    std::vector<Problem>* problems) {
  const TensorEntry* a = header.Find(name);
  const TensorEntry* b = header.Find(other);
  if (a == nullptr || b == nullptr || a->dtype == b->dtype) return;
  problems->push_back({b->declared_at, std::string("expected ") + other + " in the dtype of " +
                                           name + ", " + a->dtype_name + ", found " +
                                           b->dtype_name});
}

void CheckUpdateDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  ReadUpdateConfig(header, problems);
  CheckSpelling(header, kUpdateKeys, kUpdateTensors, problems);
  const TensorEntry* before = header.Find("before");
  std::vector<const TensorEntry*> all;
  for (const UpdatePart& part : kUpdateParts) {
    const TensorEntry* tensor = header.Find(part.name);
    if (tensor == nullptr) {
      if (part.required)
        problems->push_back({0, std::string("expected a tensor ") + part.name + ", found none"});
      continue;
    }
    all.push_back(tensor);
    CheckDType(*tensor, Content::kAnyFloating, problems);
    if (before != nullptr) CheckShape(*tensor, "before's", before->shape, problems);
  }
  CheckSameDType(header, "before", "after", problems);
  CheckSameDType(header, "moment_before", "moment_after", problems);
  if (!all.empty()) CheckTotalSize(all, "update tensors", "dump a part of the tensor", problems);
}

std::string UpdateOp(const SafetensorsHeader& /*header*/) { return "update"; }

absl::Status LoadUpdateDump(const InputFile& file, const SafetensorsHeader& header,
                            v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  v1::Tensor tensors[std::size(kUpdateParts)];
  UpdateInput input;
  for (size_t i = 0; i < std::size(kUpdateParts); ++i) {
    const TensorEntry* entry = header.Find(kUpdateParts[i].name);
    if (entry == nullptr) continue;
    if (absl::Status s = LoadTensor(file, *entry, &tensors[i]); !s.ok()) return s;
    const absl::StatusOr<TensorView> view = ViewTensor(tensors[i], kUpdateParts[i].name);
    if (!view.ok()) return view.status();
    input.*kUpdateParts[i].view = *view;
  }
  const std::string run = ReadDumpSite(header, &none).run;
  const auto count = static_cast<uint64_t>(input.before.elements());
  UpdateOptions options;
  options.with_sample = true;
  options.key = SampleKey(run, evidence->step(), evidence->site().layer(), evidence->site().op());
  options.threads = ThreadsFor(tensors[0].data().size());
  if (tensors[0].data().size() <= kWholeUpdateBytes)
    options.max_samples = static_cast<uint32_t>(std::max<uint64_t>(count, kMaxSamples));
  evidence->set_sample_size(count);
  evidence->set_exercised(v1::EXERCISED_YES);
  *evidence->mutable_update()->mutable_config() = ReadUpdateConfig(header, &none);
  return FillUpdate(input, options, evidence->mutable_update());
}

}  // namespace

const DumpKind kUpdateDump = {"update", LooksLikeUpdate, CheckUpdateDump, UpdateOp, LoadUpdateDump};

}  // namespace plumbline::audit
