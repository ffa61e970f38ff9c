// Redaction: token and sequence ids become keyed hashes, so that evidence no longer names text.
//
// Equal ids stay equal under one key, in every message and process; order within a router call is
// kept beside them (RoutingSample.sequence_order). Expert choices, scores and log-probabilities
// stay as they are. What is hashed and why: docs/decisions/0116-redaction.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plumbline/v1/batch.pb.h"
#include "transport/siphash.h"

namespace plumbline::transport {

inline constexpr char kRedactKeyVariable[] = "PLUMBLINE_REDACT_KEY";
inline constexpr size_t kLeastRedactKey = 16;  // bytes; fewer can be guessed

// The secret for `run`: $PLUMBLINE_REDACT_KEY; else derived from the access token
// ($PLUMBLINE_TOKEN_FILE), so that all ranks with the token have the same; else random.
// InvalidArgument: the variable is too short. Unavailable: the system gives no random bytes.
absl::StatusOr<std::string> RedactSecret(const std::string& run);

// OK, or why `secret` cannot be one; `name` is where it came from. Never quotes the secret.
absl::Status CheckRedactSecret(const std::string& name, std::string_view secret);

// Thread-safe.
class Redactor {
 public:
  // The four keys are derived from the secret by SHA-256.
  explicit Redactor(std::string_view secret);

  // Names the key, does not give it away; never 0.
  uint64_t key_id() const { return key_id_; }

  // Replaces what names text and sets redacted_key. Evidence that has one already, or holds no
  // ids, stays as it is: false.
  bool Redact(v1::Evidence* evidence) const;
  // All of a batch; how many items were changed.
  uint64_t Redact(v1::Batch* batch) const;

  // A token or sequence id as its hash: not negative for ids from 0 on. -1 to -1024 stay, they
  // mean "none".
  int64_t Token(int64_t id) const { return Hashed(token_, id); }
  int64_t Sequence(int64_t id) const { return Hashed(sequence_, id); }
  // Of a decimal number as `Sequence` of it; empty stays empty.
  std::string SequenceText(const std::string& id) const;

 private:
  static int64_t Hashed(const SipKey& key, int64_t id);
  void RedactRouting(v1::RoutingSample* sample) const;
  void RedactSequence(v1::LogprobsSequence* sequence) const;
  void RedactLogits(v1::Logits* logits) const;

  SipKey token_, sequence_, pool_, text_;
  uint64_t key_id_ = 0;
};

}  // namespace plumbline::transport
