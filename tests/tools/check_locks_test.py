"""Tests tools/check_locks on a small tree: correct code passes, and each mistake is refused by name."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

RIGHT = """
#include <vector>

#include "base/mutex.h"

namespace plumbline {

class Jobs {
 public:
  void Add(int job) {
    const MutexLock lock(mutex_);
    jobs_.push_back(job);
    Notify();
  }
  int Take() {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return !jobs_.empty(); });
    const int job = jobs_.back();
    jobs_.pop_back();
    lock.Unlock();
    return job;
  }

 private:
  void Notify() PLUMB_REQUIRES(mutex_) { changed_.NotifyAll(); }

  Mutex mutex_;
  CondVar changed_;
  std::vector<int> jobs_ PLUMB_GUARDED_BY(mutex_);
};

void Use(Jobs* jobs) { jobs->Add(jobs->Take()); }

}  // namespace plumbline
"""


class CheckLocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in ["tools/check_locks", "base/mutex.h"]:
            (self.tree / name).parent.mkdir()
            shutil.copy(ROOT / name, self.tree / name)
        (self.tree / "server").mkdir()

    def check(self, code, analysed=True, path=os.environ["PATH"]):
        """Returns (exit status, output) for a tree whose only file is `code`."""
        source = self.tree / "server" / "jobs.cc"
        source.write_text(code)
        command = {"directory": str(self.tree), "file": str(source), "command": f"c++ -I{self.tree} -Wno-restrict -c {source}"}
        (self.tree / "compile_commands.json").write_text(json.dumps([command]))
        run = subprocess.run([self.tree / "tools" / "check_locks", *([self.tree] if analysed else [])], text=True,
                             env=dict(os.environ, PATH=path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return run.returncode, run.stdout

    def assert_refused(self, old, new, *stated, analysed=True):
        self.assertIn(old, RIGHT)
        status, text = self.check(RIGHT.replace(old, new), analysed)
        self.assertEqual(status, 1, text)
        for words in stated:
            self.assertIn(words, text)

    def test_what_is_right_passes(self):
        status, text = self.check(RIGHT)
        self.assertEqual(status, 0, text)
        self.assertIn("1 files analysed", text)

    def test_a_member_touched_without_its_mutex(self):
        self.assert_refused("    const MutexLock lock(mutex_);\n    jobs_.push_back", "    jobs_.push_back",
                            "server/jobs.cc:11", "'jobs_' requires holding mutex 'mutex_'")

    def test_a_member_touched_after_the_lock_was_left(self):
        self.assert_refused("    lock.Unlock();\n    return job;", "    lock.Unlock();\n    return jobs_.back();",
                            "'jobs_' requires holding mutex 'mutex_'")

    def test_a_function_called_without_the_lock_that_it_needs(self):
        self.assert_refused("jobs_.push_back(job);\n    Notify();\n  }", "jobs_.push_back(job);\n  }\n  void Again() { Notify(); }",
                            "calling function 'Notify' requires holding mutex 'mutex_'")

    def test_a_condition_that_does_not_describe_what_it_needs(self):
        self.assert_refused("[this]() PLUMB_REQUIRES(mutex_) {", "[this] {", "'jobs_' requires holding mutex 'mutex_'")

    def test_a_lock_taken_twice(self):
        self.assert_refused("    Notify();", "    const MutexLock again(mutex_);\n    Notify();",
                            "acquiring mutex 'mutex_' that is already held")

    def test_a_file_that_does_not_compile_is_not_taken_for_right(self):
        self.assert_refused("std::vector<int>", "std::vektor<int>", "vektor")

    def test_a_compiler_that_is_killed_is_not_taken_for_right(self):
        killed = self.tree / "killed" / "clang++"
        killed.parent.mkdir()
        killed.write_text("#!/bin/sh\nkill -9 $$\n")
        killed.chmod(0o755)
        status, text = self.check(RIGHT, path=f"{killed.parent}:{os.environ['PATH']}")
        self.assertEqual(status, 1, text)
        self.assertIn("server/jobs.cc: clang++ ended with -9", text)

    def test_a_lock_of_the_standard_library(self):
        self.assert_refused("  CondVar changed_;", "  CondVar changed_;\n  std::shared_mutex other_;",
                            "server/jobs.cc:29: std::shared_mutex is not checked", analysed=False)

    def test_a_mutex_with_nothing_after_it_states_what_it_is_for(self):
        bare = "  Mutex other_;"
        self.assert_refused("  CondVar changed_;", f"  CondVar changed_;\n{bare}",
                            "server/jobs.cc:29: nothing is PLUMB_GUARDED_BY(other_)", analysed=False)
        stated = RIGHT.replace("  CondVar changed_;", f"  CondVar changed_;\n{bare}  // held while a file is exchanged")
        self.assertEqual(self.check(stated), (0, self.check(RIGHT)[1]))


if __name__ == "__main__":
    unittest.main()
