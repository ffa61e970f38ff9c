// The attack: small routers, clean and leaking, on texts of many structures, recorded as trainers
// record them. A family is one function; whether it leaks is found by running it again with another
// suffix, never asserted.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::attack {

// Rows of one router call in the order of its queue. `x` are each token's own logits: of its
// symbol, its place and nothing that follows.
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

// What a router did, and what its configuration says of it.
struct Call {
  std::vector<double> scores;  // [T,E] as recorded
  bool logits = true;          // before `function`
  int k = 1;
  std::vector<int> index;     // [T,k], empty: experts chose, or a number that varies
  std::vector<uint8_t> keep;  // [T,k]
  std::vector<uint8_t> map;   // [T,E] who computes whom: the truth
  std::vector<double> bias;   // [E] recorded, captured before; empty: none
  int64_t capacity = 0;       // of the configuration; 0: none
  std::vector<int> pool;      // [T] who competes; empty: the whole call
  std::string policy;         // as the configuration names it; empty: no word for it
  std::string randomness;
  v1::ScoreFunction function = v1::SCORE_SOFTMAX;
  int groups = 0, top_groups = 0;
  bool group_sum2 = false;
};

// How texts are made. kMixed: one of the others by the seed.
enum class Data {
  kMixed,
  kPlain,         // tokens differ
  kPopular,       // some experts are liked by all
  kSudoku,        // each of nine symbols nine times a sequence
  kPermutations,  // every sequence holds each symbol once
  kEven,          // each of 2E symbols twice a sequence
  kPeriodic,      // a few words over and over
  kZipf,          // few symbols are most of the text
  kTied,          // scores of few values
  kTiny,          // a dozen rows
  kPacked,        // documents of random lengths
  kRepeated,      // prompts stand several times in the batch
  kOne,           // one expert
  kList,          // one sequence that holds each id of a list once, its scores those of the id
  kLarge,         // for leaks: several hundred rows, popular experts
};

// What is fixed for a recording: sizes, and draws that belong to the router and to rows, never to
// the batch. Everything stored in a router comes from Normal and Uniform.
class Lab {
 public:
  Lab(Data data, uint64_t seed);

  int experts() const { return experts_; }
  int k() const { return k_; }
  double factor() const { return factor_; }  // of capacities
  Data data() const { return data_; }
  uint64_t seed() const { return seed_; }

  double Uniform(uint64_t what, uint64_t a = 0, uint64_t b = 0) const;
  double Normal(uint64_t what, uint64_t a = 0, uint64_t b = 0) const;
  // A draw of this row's own.
  double Uniform(uint64_t what, const Rows& rows, int t, int e = 0) const;
  double Normal(uint64_t what, const Rows& rows, int t, int e = 0) const;

  Rows Text() const;
  // The same text with what follows `cut` in `sequence` replaced, in one of three manners.
  Rows Changed(const Rows& rows, int64_t sequence, int64_t cut, int manner) const;
  // Another text of the same kind, whose statistics a router may have stored.
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
// The clean ones whose stored numbers are those of the recorded text: that recording is a leaking
// router's, bit for bit. They may be hints, never proofs.
std::set<std::string> CalibratedFamilies();
// Those that know their load.
std::set<std::string> LoadAwareFamilies();

// How much of a call gets into the recording, and how well.
struct Recorder {
  bool facts = false;       // capacity, pools and policy, as the configuration has them
  bool misdeclare = false;  // ... or fields that are wrong
  bool whole = false;       // choices, what was kept of them, and the map
};
v1::Batch Record(const Lab& lab, const Rows& rows, const Call& call, const Recorder& recorder);

// By intervention: does another suffix change an earlier token's experts?
bool Leaks(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries);
// ... do other tokens in the other sequences of the batch change a sequence's experts?
bool DependsOnBatch(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries);
int64_t Refused(const Rows& rows, const Call& call);

}  // namespace plumbline::rules::attack
