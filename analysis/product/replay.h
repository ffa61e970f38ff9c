// Which arithmetic gave the sampled elements of a product: every candidate replayed, those that
// explain all of them, and what that proves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/product/case.h"
#include "analysis/product/model.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

struct MatmulCounts {
  MatmulModel model;
  int32_t tested = 0;
  int32_t missed = 0;  // counting stops at MatmulReplay::needed
};

// The class of candidates that give the output's bits on every judged sample.
//
// Proof of a claim (a family, "inputs cut", "16-bit parts"): every member of the class fulfils it,
// and every candidate that does not misses k >= ln(C 10^6) samples, C the number of candidates. A
// model that is not listed and differs from the class on as many samples matches by luck with
// probability at most C e^-k. What is said is "the only match among the candidates".
struct MatmulReplay {
  std::string name = "unexplained";           // the first family of the class; "unexplained"
  bool proved = false;                        // of the family
  std::map<std::string, std::string> shared;  // parameters that all members have in common
  std::set<std::string> families;             // in the class
  std::vector<MatmulModel> accepted;
  int32_t samples = 0;          // judged: finite factors
  int32_t aside = 0;            // with a factor that is not finite
  int32_t left = 0;             // not replayed: all that was affordable had been
  int32_t matches = 0;          // samples; of an unexplained case those of the best candidate
  int32_t discriminating = 0;   // samples that the nearest other family misses (at most `needed`)
  int32_t needed = 0;           // k
  uint64_t candidates = 0;      // C
  std::string best, runner_up;  // in words; empty: there is none
  int32_t runner_up_matches = 0;
  std::vector<MatmulCounts> tallies;  // of all candidates

  bool explained() const { return !accepted.empty(); }
  using Claim = std::function<bool(const MatmulModel&)>;
  bool Holds(const Claim& claim) const;   // for every member of the class
  bool Proves(const Claim& claim) const;  // and for no other candidate that is still possible

  std::string Words() const;
  // Keys of the contract: model {name, ...}, matches, samples, discriminating, runner_up,
  // runner_up_matches; beside them needed, candidates, proved.
  void AddDetails(google::protobuf::Struct& details) const;
};

// At most `steps` products are replayed (default: a few seconds on one core).
MatmulReplay ReplayMatmul(const MatmulCase& c, uint64_t steps = uint64_t{3} << 30);

// Samples on which the model gives the output, of those with finite factors.
struct MatmulMatches {
  int32_t matches = 0;
  int32_t samples = 0;
};
MatmulMatches CountMatches(const MatmulCase& c, const MatmulModel& model);

}  // namespace plumbline::rules
