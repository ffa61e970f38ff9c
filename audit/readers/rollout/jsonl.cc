#include "audit/readers/rollout/jsonl.h"

#include <algorithm>

#include "audit/readers/rollout/record_keys.h"
#include "audit/readers/rollout/source.h"

namespace plumbline::audit {

bool RolloutReader::Recognise(std::string_view path, std::string_view head) const {
  const std::vector<RecordKeys>& records = KeysOfRecords(path, head);
  return std::any_of(records.begin(), records.end(), [&](const RecordKeys& keys) {
    const auto found = std::count_if(keys_.begin(), keys_.end(),
                                     [&](const std::string& key) { return keys.contains(key); });
    return static_cast<size_t>(found) >= enough_;
  });
}

std::vector<std::unique_ptr<Source>> RolloutReader::Open(
    const std::vector<InputReport*>& files) const {
  return OpenRollouts(map_, files);
}

const Reader& NativeRollouts() {
  static const RolloutReader kReader(
      NativeColumns(),
      {"rollout_logprobs", "train_logprobs", "loss_mask", "sequence_id", "weight_versions",
       "train_version", "logprob_mode", "rollout_source", "rollout_routing", "train_routing"},
      2);
  return kReader;
}

const Reader& PrimeRlRollouts() {
  static const RolloutReader kReader(PrimeRlColumns(),
                                     {"inference_logprobs", "trainer_logprobs", "export_step",
                                      "export_sequence_idx", "mismatch_kl"},
                                     2);
  return kReader;
}

const Reader& NemoRlRollouts() {
  static const RolloutReader kReader(
      NemoRlColumns(),
      {"generation_logprobs", "prev_logprobs", "token_loss_mask", "sample_loss_mask"}, 2);
  return kReader;
}

}  // namespace plumbline::audit
