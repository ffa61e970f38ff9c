// Finds the arithmetic that gave the sampled elements of a product: replays every candidate, keeps
// those that explain all elements, and decides what that proves.
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

namespace plumbline::analysis {

struct MatmulCounts {
  MatmulModel model;
  int32_t tested = 0;
  int32_t missed = 0;  // counting stops at MatmulReplay::needed
};

// The class of candidates that give the output's bits on every judged sample.
//
// Proof of a claim (a family, "inputs cut", "16-bit parts"): every member of the class fulfils it,
// and every candidate that does not misses k >= ln(C 10^6) samples, where C is the number of
// candidates. An unlisted model that differs from the class on as many samples matches by chance
// with probability at most C e^-k. The claim is only "the only match among the candidates".
struct MatmulReplay {
  std::string name = "unexplained";           // the first family of the class, or "unexplained"
  bool proved = false;                        // of the family
  std::map<std::string, std::string> shared;  // parameters common to all members
  std::set<std::string> families;             // in the class
  std::vector<MatmulModel> accepted;
  int32_t samples = 0;          // judged: finite factors
  int32_t aside = 0;            // samples with a non-finite factor
  int32_t left = 0;             // not replayed, because the budget was used up
  int32_t matches = 0;          // samples; if unexplained, those of the best candidate
  int32_t discriminating = 0;   // samples that the closest other family misses (at most `needed`)
  int32_t needed = 0;           // k
  uint64_t candidates = 0;      // C
  std::string best, runner_up;  // in words; empty if there is none
  int32_t runner_up_matches = 0;
  std::vector<MatmulCounts> tallies;  // of all candidates

  bool explained() const { return !accepted.empty(); }
  using Claim = std::function<bool(const MatmulModel&)>;
  bool Holds(const Claim& claim) const;  // true for every member of the class
  bool Proves(const Claim& claim)
      const;  // true for them, and for no other candidate that is still possible

  std::string Words() const;
  // Adds the keys of the contract: model {name, ...}, matches, samples, discriminating, runner_up,
  // runner_up_matches; and needed, candidates, proved.
  void AddDetails(google::protobuf::Struct& details) const;
};

// Replays at most `steps` products (default: a few seconds on one core).
MatmulReplay ReplayMatmul(const MatmulCase& c, uint64_t steps = uint64_t{3} << 30);

// Number of samples with finite factors, and of those on which the model gives the output.
struct MatmulMatches {
  int32_t matches = 0;
  int32_t samples = 0;
};
MatmulMatches CountMatches(const MatmulCase& c, const MatmulModel& model);

}  // namespace plumbline::analysis
