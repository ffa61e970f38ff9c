// Formats a value of a pickle as unique text: two values that differ never have the same text.
#pragma once

#include <string>
#include <string_view>

#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// Form of a value. Two values are compared in detail only if their forms are equal.
enum class ValueForm {
  kScalar,  // none, numbers, truth values, class names: ScalarText is the whole value
  kText,
  kBytes,
  kTensor,
  kArray,  // a numpy array of a plain dtype
  kList,
  kTuple,
  kSet,
  kDict,
  kCall,     // an object that is not interpreted: compared by its parts
  kStorage,  // a storage of no tensor
  kRun,      // values that the pickle reader did not keep
};

ValueForm FormOfValue(const TorchFile& file, PickleId id);

// Returns a scalar as Python writes it: "None", "True", "3", "3.0", "-0.0", "(1.0+2.0j)", "nan",
// and "0.5 (numpy f8)" for numpy numbers. Integers of any size are written in full.
std::string ScalarText(const PickleTree& tree, PickleId id);

// Returns a description for display: a scalar's text, a short text quoted, "a list of 3", "a
// tensor", "a call of x.Y".
std::string DescribeValue(const TorchFile& file, PickleId id);

// Returns a key that is equal if the values are equal, for any order of sets. Long keys are
// replaced by a digest. Used for dict keys and items of sets.
std::string ValueKey(const PickleTree& tree, PickleId id);

// If the value is a str subclass (torch's version), returns its text; otherwise `id`.
PickleId TextOrItself(const PickleTree& tree, PickleId id);

// Returns "torch.optim.lr_scheduler.OneCycleLR._annealing_cos" for an object's bound method;
// otherwise "".
std::string MethodOf(const PickleTree& tree, PickleId id);

// Returns the name of a call's callee. Both module names of numpy map to one.
std::string CalleeName(const PickleTree& tree, PickleId id);

}  // namespace plumbline::audit
