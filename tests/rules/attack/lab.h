// The attack: small clean and leaking routers on texts with many structures, in the recording
// formats of trainers. A family is one function. To decide if a router leaks, the attack reruns it
// with a different suffix; it never assumes the answer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::attack {

// The rows of one router call in queue order. `x` contains the logits of each token. They depend on
// its symbol, its position and the prefix only.
struct Rows {
  int count = 0;
  int experts = 0;
  std::vector<int64_t> sequence, position;  // [T]
  std::vector<int> symbol;                  // [T]
  std::vector<uint8_t> padding;             // [T]
  std::vector<double> x;                    // [T,E]
  double At(int t, int e) const {
    return x[static_cast<size_t>(t) * static_cast<size_t>(experts) + static_cast<size_t>(e)];
  }
};

// The result of a router and the recorded configuration.
struct Call {
  std::vector<double> scores;  // [T,E] as recorded
  bool logits = true;          // If set, `scores` are logits before `function`.
  int k = 1;
  std::vector<int> index;     // [T,k]; empty if experts choose, or if the number varies
  std::vector<uint8_t> keep;  // [T,k]
  std::vector<uint8_t> map;   // [T,E] The ground truth: 1 if the expert computes the token.
  std::vector<double> bias;   // [E] recorded bias before the update; empty if there is none
  int64_t capacity = 0;       // Configured capacity; 0 if there is none.
  std::vector<int> pool;      // [T] Competition pool; empty if the pool is the whole call.
  std::string policy;         // Policy name in the configuration; empty if there is no name.
  std::string randomness;
  v1::ScoreFunction function = v1::SCORE_SOFTMAX;
  int groups = 0, top_groups = 0;
  bool group_sum2 = false;
};

// The structure of the text. kMixed: chosen by the seed from the others.
enum class Data {
  kMixed,
  kPlain,         // distinct tokens
  kPopular,       // some experts are popular with all tokens
  kSudoku,        // nine symbols, each nine times per sequence
  kPermutations,  // every symbol once per sequence
  kEven,          // 2E symbols, each twice per sequence
  kPeriodic,      // a few words, repeated
  kZipf,          // few symbols make up most of the text
  kTied,          // scores with few values
  kTiny,          // a dozen rows
  kPacked,        // documents of random lengths
  kRepeated,      // repeated prompts within the batch
  kOne,           // one expert
  kList,          // one sequence with each id of a list once; scores depend on the id
  kLarge,         // for leaks: several hundred rows, popular experts
};

// The constants of one recording: sizes, and draws that belong to the router or to rows, never to
// the batch. All stored numbers of a router come from Normal and Uniform.
class Lab {
 public:
  Lab(Data data, uint64_t seed);

  int experts() const { return experts_; }
  int k() const { return k_; }
  double factor() const { return factor_; }  // The capacity factor.
  Data data() const { return data_; }
  uint64_t seed() const { return seed_; }

  double Uniform(uint64_t what, uint64_t a = 0, uint64_t b = 0) const;
  double Normal(uint64_t what, uint64_t a = 0, uint64_t b = 0) const;
  // Return a draw that depends on this row only.
  double Uniform(uint64_t what, const Rows& rows, int t, int e = 0) const;
  double Normal(uint64_t what, const Rows& rows, int t, int e = 0) const;

  Rows Text() const;
  // Returns the same text, but with new content after `cut` in `sequence`, by one of three methods.
  Rows Changed(const Rows& rows, int64_t sequence, int64_t cut, int method) const;
  // Returns another text of the same kind. A router may have stored its statistics.
  Rows Earlier() const;
  std::vector<double> LogitsOf(int symbol, int64_t sequence, int64_t position) const;

 private:
  void Fill(Rows& rows, uint64_t salt) const;
  void Score(Rows& rows) const;

  Data data_;
  uint64_t seed_;
  int experts_, k_, sequences_, length_;
  double factor_, noise_, popularity_, quantum_ = 0;
};

using Router = Call (*)(const Lab& lab, const Rows& rows);

struct Family {
  const char* name;
  Router route;
  Data data = Data::kMixed;
};

const std::vector<Family>& CleanFamilies();
const std::vector<Family>& LeakingFamilies();
// Returns the clean families whose stored numbers come from the recorded text. Such a recording
// equals that of a leaking router bit for bit, so hints are allowed, but proofs are not.
std::set<std::string> CalibratedFamilies();
// Returns the load-aware families.
std::set<std::string> LoadAwareFamilies();

// The recorded fields and their quality.
struct Recorder {
  bool facts = false;       // Capacity, pools and policy, as configured.
  bool misdeclare = false;  // If set, fields are recorded incorrectly.
  bool whole = false;       // If set, choices, kept choices and the map are all recorded.
};
v1::Batch Record(const Lab& lab, const Rows& rows, const Call& call, const Recorder& recorder);

// Returns true if another suffix changes the experts of an earlier token, determined by
// intervention.
bool Leaks(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries);
// Returns true if other tokens in the other sequences of the batch change the experts of a
// sequence.
bool DependsOnBatch(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries);
int64_t Refused(const Rows& rows, const Call& call);

}  // namespace plumbline::rules::attack
