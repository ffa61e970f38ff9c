// Redaction: token and sequence ids become keyed hashes, so that evidence no longer identifies
// text.
//
// Equal ids stay equal under one key, in every message and process. Their order within a router
// call is kept separately (RoutingSample.sequence_order). Expert choices, scores and
// log-probabilities stay unchanged. The hashed fields and the reasons:
// docs/decisions/0116-redaction.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plumbline/v1/batch.pb.h"
#include "transport/siphash.h"

namespace plumbline::transport {

inline constexpr char kRedactKeyVariable[] = "PLUMBLINE_REDACT_KEY";
inline constexpr size_t kLeastRedactKey = 16;  // bytes; a shorter one can be guessed

// Returns the secret for `run`: $PLUMBLINE_REDACT_KEY; else derived from the access token
// ($PLUMBLINE_TOKEN_FILE), so that all ranks with the token share it; else random. Returns
// InvalidArgument if the variable is too short, Unavailable if the system gives no random bytes.
absl::StatusOr<std::string> RedactSecret(const std::string& run);

// Returns OK, or why `secret` cannot be used; `name` is its origin. Never quotes the secret.
absl::Status CheckRedactSecret(const std::string& name, std::string_view secret);

// Thread-safe.
class Redactor {
 public:
  // Derives the four keys from the secret by SHA-256.
  explicit Redactor(std::string_view secret);

  // Returns an identifier of the key that does not reveal it; never 0.
  uint64_t key_id() const { return key_id_; }

  // Replaces ids that identify text, and sets redacted_key. Returns false, and changes nothing, if
  // the evidence has a redacted_key already or holds no ids.
  bool Redact(v1::Evidence* evidence) const;
  // Redacts a whole batch. Returns how many items changed.
  uint64_t Redact(v1::Batch* batch) const;

  // Return the hash of a token or sequence id: not negative for ids from 0 on. Ids from -1024 to -1
  // mean "none" and stay.
  int64_t Token(int64_t id) const { return Hashed(token_, id); }
  int64_t Sequence(int64_t id) const { return Hashed(sequence_, id); }
  // Returns `Sequence` of a decimal number; an empty text stays empty.
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
