#include "audit/readers/rollout/jsonl.h"

#include <algorithm>
#include <set>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/rollout/source.h"

namespace plumbline::audit {
namespace {

constexpr size_t kLook = 1 << 20;  // bytes searched to recognise a format

// Returns the keys of an object, as far as the text is valid.
std::set<std::string> KeysOf(std::string_view text) {
  std::set<std::string> keys;
  JsonCursor cursor(text);
  if (cursor.Peek() != JsonCursor::Kind::kObject) return keys;
  cursor.EnterObject();
  for (std::string_view key; cursor.NextMember(&key) && (keys.emplace(key), cursor.Skip());) {
  }
  return keys;
}

}  // namespace

bool RolloutReader::Fits(std::string_view text) const {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::set<std::string> keys = KeysOf(text.substr(0, end));
    const auto found = std::count_if(keys_.begin(), keys_.end(),
                                     [&](const std::string& key) { return keys.contains(key); });
    if (static_cast<size_t>(found) >= enough_) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

bool RolloutReader::Recognise(std::string_view path, std::string_view head) const {
  if (!IsCompressed(head)) {
    if (head.find('{') == std::string_view::npos) return false;
    if (Fits(head)) return true;
    if (head.size() < kHeadBytes) return false;
  }
  return Fits(FirstBytes(path, head, kLook));
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
