"""The hash of the sources in result files: made at every build, with or without git."""

import re
import shutil
import subprocess
import unittest

from memfloor_process import ROOT, MemfloorTest

SCRIPT = ROOT / "cmake" / "BuildInfo.cmake"


@unittest.skipUnless(shutil.which("cmake"), "there is no cmake")
class BuildInfoTest(MemfloorTest):
    def source_sha256(self):
        """Of the tree in self.folder."""
        header = self.folder / "header.h"
        values = self.write("values.cmake", f"set(source_dir [==[{self.folder}]==])\n"
                                            f"set(header [==[{header}]==])\n")
        subprocess.run(["cmake", f"-DVALUES={values}", "-P", SCRIPT], check=True,
                       capture_output=True)
        return re.search(r'kSourceSha256 = "([0-9a-f]{64})"', header.read_text())[1]

    def test_follows_the_sources_alone(self):
        for folder in ["core", "suite/deep", "docs"]:
            (self.folder / folder).mkdir(parents=True)
        self.write("CMakeLists.txt", "project(x)\n")
        self.write("core/a.cc", "int a;\n")
        self.write("suite/deep/b.h", "int b;\n")
        first = self.source_sha256()
        self.assertEqual(self.source_sha256(), first)
        self.write("docs/c.md", "text\n")  # what no result depends on
        self.write("README.md", "text\n")
        self.assertEqual(self.source_sha256(), first)
        seen = {first}
        for change in [lambda: self.write("core/a.cc", "int c;\n"),
                       lambda: self.write("suite/deep/b.h", "int c;\n"),
                       lambda: self.write("CMakeLists.txt", "project(y)\n"),
                       lambda: (self.folder / "core/a.cc").rename(self.folder / "core/d.cc"),
                       lambda: self.write("core/new.cc", "")]:
            change()
            self.assertNotIn(now := self.source_sha256(), seen)
            seen.add(now)


if __name__ == "__main__":
    unittest.main()
