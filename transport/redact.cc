#include "transport/redact.h"

#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/load.h"
#include "base/sha256.h"
#include "transport/credentials.h"

namespace plumbline::transport {
namespace {

constexpr int64_t kLowestNone = -1024;  // ids from here to -1 mean "no id"
constexpr double kHidden = std::numeric_limits<double>::quiet_NaN();

SipKey Derived(const std::string& domain, std::string_view secret) {
  const std::string digest = Sha256Of("plumbline redact " + domain + "\n" + std::string(secret));
  SipKey key;
  std::memcpy(&key.k0, digest.data(), 8);
  std::memcpy(&key.k1, digest.data() + 8, 8);
  return key;
}

// Returns the number of elements of an integer tensor; nothing if the tensor cannot be read as
// integers.
std::optional<size_t> Integers(const v1::Tensor& tensor) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  const size_t width = DTypeSize(dtype);
  if (width == 0 || IsFloating(dtype) || tensor.data().size() % width != 0) return std::nullopt;
  return tensor.data().size() / width;
}

// Replaces each element by its hash, as i64. If the tensor cannot be read as integers, removes its
// bytes. Rules report it as malformed in both cases.
template <typename Hash>
void HashTensor(v1::Tensor* tensor, const Hash& hash) {
  const std::optional<size_t> n = Integers(*tensor);
  if (!n) return tensor->clear_data();
  std::string data(*n * sizeof(int64_t), '\0');
  const auto dtype = static_cast<DType>(tensor->dtype());
  int64_t last = 0, hashed = 0;
  for (size_t i = 0; i < *n; ++i) {
    const int64_t id = LoadInt64(tensor->data().data(), dtype, static_cast<int64_t>(i));
    if (i == 0 || id != last) hashed = hash(id);  // consecutive equal ids are the common case
    last = id;
    std::memcpy(data.data() + i * sizeof(int64_t), &hashed, sizeof(int64_t));
  }
  tensor->set_dtype(v1::DTYPE_I64);
  *tensor->mutable_data() = std::move(data);
}

// Returns the rank of each element among the tensor's distinct ones, from 0.
v1::Tensor OrderOf(const v1::Tensor& ids) {
  v1::Tensor order;
  const std::optional<size_t> n = Integers(ids);
  if (!n) return order;
  std::vector<int64_t> all(*n);
  for (size_t i = 0; i < *n; ++i)
    all[i] = LoadInt64(ids.data().data(), static_cast<DType>(ids.dtype()), static_cast<int64_t>(i));
  std::vector<int64_t> distinct;
  for (size_t i = 0; i < *n; ++i)
    if (i == 0 || all[i] != all[i - 1]) distinct.push_back(all[i]);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  order.set_dtype(v1::DTYPE_I32);
  *order.mutable_shape() = ids.shape();
  order.mutable_data()->resize(*n * sizeof(int32_t));
  int32_t rank = 0;
  for (size_t i = 0; i < *n; ++i) {
    if (i == 0 || all[i] != all[i - 1]) {
      const auto at = std::lower_bound(distinct.begin(), distinct.end(), all[i]);
      rank = static_cast<int32_t>(at - distinct.begin());
    }
    std::memcpy(order.mutable_data()->data() + i * sizeof(int32_t), &rank, sizeof(int32_t));
  }
  return order;
}

// Returns true if the tensor may hold token ids: integers that are not weights, gradients,
// positions or masks.
bool MayHoldIds(const v1::TensorState& tensor) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  return DTypeSize(dtype) > 0 && !IsFloating(dtype) && dtype != DType::kBool &&
         (tensor.role().empty() || tensor.role() == "activation");
}

// Hides the elements. The digest stays, because replicas are compared by it.
void HideElements(v1::TensorState* tensor) {
  if (tensor->has_sample()) {
    tensor->clear_sample();
    tensor->set_no_sample_reason("redacted: an integer tensor may hold token ids");
  }
  v1::TensorSummary* s = tensor->mutable_summary();
  s->set_min(kHidden);
  s->set_max(kHidden);
  s->set_amax(kHidden);
  s->set_sum(kHidden);
  s->set_sum_low(0);
  s->set_sum_squares(kHidden);
  s->set_sum_squares_low(0);
  s->set_l1(kHidden);
  s->clear_exponents();
}

}  // namespace

absl::Status CheckRedactSecret(const std::string& name, std::string_view secret) {
  if (secret.size() >= kLeastRedactKey) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", secret.size(),
                                                 " bytes; expected at least ", kLeastRedactKey,
                                                 " random ones (openssl rand -hex 32)"));
}

absl::StatusOr<std::string> RedactSecret(const std::string& run) {
  const char* given = std::getenv(kRedactKeyVariable);
  if (given != nullptr && *given != '\0') {
    if (absl::Status s = CheckRedactSecret(kRedactKeyVariable, given); !s.ok()) return s;
    return std::string(given);
  }
  const std::string path = CredentialsFromEnvironment().token_file;
  if (!path.empty()) {
    if (auto token = ReadToken(path); token.ok()) return absl::StrCat("token\n", run, "\n", *token);
  }
  std::string random(32, '\0');
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return absl::UnavailableError("redact: the system returned no random bytes for a key");
  return random;
}

Redactor::Redactor(std::string_view secret)
    : token_(Derived("token", secret)),
      sequence_(Derived("sequence", secret)),
      pool_(Derived("pool", secret)),
      text_(Derived("text", secret)),
      key_id_(SipHash(Derived("name", secret), uint64_t{0})) {
  if (key_id_ == 0) key_id_ = 1;
}

int64_t Redactor::Hashed(const SipKey& key, int64_t id) {
  if (id < 0 && id >= kLowestNone) return id;
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const uint64_t hash = SipHash(key, static_cast<uint64_t>(id));
  return static_cast<int64_t>(id < 0 ? hash | kSign : hash & ~kSign);
}

std::string Redactor::SequenceText(const std::string& id) const {
  if (id.empty()) return id;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  if (error == std::errc() && stop == id.data() + id.size())
    return std::to_string(Sequence(number));
  return std::to_string(SipHash(text_, id) >> 1);
}

void Redactor::RedactRouting(v1::RoutingSample* sample) const {
  if (sample->has_sequence_id()) {
    *sample->mutable_sequence_order() = OrderOf(sample->sequence_id());
    HashTensor(sample->mutable_sequence_id(), [this](int64_t id) { return Sequence(id); });
  }
  if (sample->has_pool_id())
    HashTensor(sample->mutable_pool_id(), [this](int64_t id) { return Hashed(pool_, id); });
}

void Redactor::RedactSequence(v1::LogprobsSequence* sequence) const {
  sequence->set_id(SequenceText(sequence->id()));
  if (sequence->has_tokens())
    HashTensor(sequence->mutable_tokens(), [this](int64_t id) { return Token(id); });
}

void Redactor::RedactLogits(v1::Logits* logits) const {
  for (v1::LogitsRow& row : *logits->mutable_rows()) {
    row.set_token(Token(row.token()));
    row.set_sequence_id(SequenceText(row.sequence_id()));
  }
  logits->clear_worst();  // the largest logits of a row identify the token
}

bool Redactor::Redact(v1::Evidence* e) const {
  if (e->redacted_key() != 0) return false;
  switch (e->what_case()) {
    case v1::Evidence::kRouting:
      if (!e->routing().has_sample()) return false;
      RedactRouting(e->mutable_routing()->mutable_sample());
      break;
    case v1::Evidence::kLogprobs:
      if (e->logprobs().sequences().empty()) return false;
      for (v1::LogprobsSequence& s : *e->mutable_logprobs()->mutable_sequences())
        RedactSequence(&s);
      break;
    case v1::Evidence::kLogits:
      if (e->logits().rows().empty() && e->logits().worst().empty()) return false;
      RedactLogits(e->mutable_logits());
      break;
    case v1::Evidence::kTensor:
      if (!MayHoldIds(e->tensor())) return false;
      HideElements(e->mutable_tensor());
      break;
    default:
      return false;
  }
  e->set_redacted_key(key_id_);
  return true;
}

uint64_t Redactor::Redact(v1::Batch* batch) const {
  uint64_t changed = 0;
  for (v1::Evidence& e : *batch->mutable_evidence()) changed += Redact(&e) ? 1 : 0;
  return changed;
}

}  // namespace plumbline::transport
