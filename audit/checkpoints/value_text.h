// A value of a pickle as text that no other value has: what is printed of two that differ is never
// the same.
#pragma once

#include <string>
#include <string_view>

#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// What two values must have in common to be looked into.
enum class ValueForm {
  kScalar,  // none, numbers, truth values, names of classes: ScalarText is all of it
  kText,
  kBytes,
  kTensor,
  kArray,  // numpy's, of a plain dtype
  kList,
  kTuple,
  kSet,
  kDict,
  kCall,     // an object that is left closed: compared by what it is made of
  kStorage,  // of no tensor
  kRun,      // values that the reader of pickles did not keep
};

ValueForm FormOfValue(const TorchFile& file, PickleId id);

// Of a scalar, as Python writes it: "None", "True", "3", "3.0", "-0.0", "(1.0+2.0j)", "nan", and
// "0.5 (numpy f8)" for numpy's. Whole numbers of any size are printed whole.
std::string ScalarText(const PickleTree& tree, PickleId id);

// For people: a scalar's text, a short text quoted, "a list of 3", "a tensor", "a call of x.Y".
std::string DescribeValue(const TorchFile& file, PickleId id);

// Equal where the values are, whatever the order of sets; long ones are folded into a digest. For
// keys and the items of sets.
std::string ValueKey(const PickleTree& tree, PickleId id);

// Texts of a class of their own (torch's version) are their texts; any other value is itself.
PickleId TextOrItself(const PickleTree& tree, PickleId id);

// "torch.optim.lr_scheduler.OneCycleLR._annealing_cos" of a bound method of an object; "": it is
// none.
std::string MethodOf(const PickleTree& tree, PickleId id);

// The name of what a call calls, numpy's modules by one name of theirs.
std::string CalleeName(const PickleTree& tree, PickleId id);

}  // namespace plumbline::audit
