"""Folders of images: one sub-folder for each class, with train/ and test/ above them or without."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from securevfl.errors import DataError

#: Endings of files that are taken for images.
ENDINGS = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
_TRAIN, _TESTS = "train", ("test", "val")
_SHOWN = 3  # names of files that were left out


@dataclass(frozen=True)
class ClassFolders:
    """Images of some classes in the order of their names, and the folder's name of each."""

    files: tuple[Path, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class ImageFolder:
    """Content of a folder of images: all, or those below ``train`` and those below ``test``.

    `split` is the name of the folder of the test images, "" without; `notes` say what was left out.
    """

    train: ClassFolders
    test: ClassFolders | None
    split: str
    notes: tuple[str, ...]


def list_images(path: Path) -> ImageFolder:
    """List the images of a folder, in an order that every machine has.

    The folder has one sub-folder for each class, or ``train`` and ``test`` (or ``val``) above the
    classes. Images lie directly in the folder of their class. Names that begin with a dot are
    passed over; other files that are no images by their ending are left out and noted. DataError
    without at least two classes, for a class without an image, folders within a class, links that
    lead out of the folder, and what cannot be listed.
    """
    if not path.is_dir():
        raise DataError(f"{path}: there is no such folder; check the path.")
    lister = _Lister(path)
    test = lister.test_folder()
    if test is None:
        train = lister.classes(path, least=2)
        return ImageFolder(train, None, "", lister.notes())
    train = lister.classes(path / _TRAIN, least=2)
    held = lister.classes(path / test, known=set(train.classes))
    return ImageFolder(train, held, test, lister.notes())


def images_of(path: Path) -> list[Path]:
    """List the images in a folder, or those in its sub-folders, in the order of their names.

    DataError where there are none, or both; and as `list_images`.
    """
    lister = _Lister(path)
    found = lister.top_images()
    if not any(one.is_dir() for one in lister.top()):
        return found or lister.images(path)
    if found:
        raise DataError(
            f"{path} holds images, such as {found[0].name}, beside folders; name a folder that has "
            f"one of both."
        )
    return list(lister.classes(path).files)


class _Lister:
    """Lists one folder, and keeps in mind what was left out."""

    def __init__(self, path: Path) -> None:
        self.path, self.root = path, Path(os.path.realpath(path))
        self.left_out: list[Path] = []
        self.unused = ""

    def test_folder(self) -> str | None:
        """Name of the folder of the test images; None where the classes lie at the top."""
        for name in (_TRAIN, *_TESTS):
            self._refuse_outside(self.path / name)
        folders = [one.name for one in self.top() if one.is_dir()]
        tests = [name for name in _TESTS if name in folders]
        if not tests or _TRAIN not in folders:
            return None
        if not any(one.is_dir() for one in self._visible(self.path / _TRAIN)):
            return None  # a class that is called so
        others = sorted(set(folders) - {_TRAIN, *_TESTS})
        if others:
            raise DataError(
                f"{self.path}: the folder {others[0]!r} is beside {_TRAIN} and {tests[0]}, which "
                f"hold the classes; move it into them, or out of the folder."
            )
        self.unused = tests[1] if len(tests) > 1 else ""
        return tests[0]

    def top(self) -> list[Path]:
        """Entries of the folder itself."""
        return self._visible(self.path)

    def top_images(self) -> list[Path]:
        """Entries of the folder itself whose names are those of images."""
        return [one for one in self.top() if _is_image(one) and not one.is_dir()]

    def classes(
        self, folder: Path, *, known: set[str] | None = None, least: int = 1
    ) -> ClassFolders:
        """Images of all sub-folders, which are `least` classes; all must be `known`, if given."""
        files: list[Path] = []
        classes: list[str] = []
        for entry in self._visible(folder):
            self._refuse_outside(entry)
            if not entry.is_dir():
                self.left_out.append(entry)
                continue
            name = _class_name(entry)
            if name in classes:
                raise DataError(
                    f"{entry}: another folder of {folder} has this name in another spelling of "
                    f"Unicode; rename one."
                )
            if known is not None and name not in known:
                raise DataError(
                    f"{entry}: there is no {self.path / _TRAIN / name}, and a class must have "
                    f"training images; move some there, or take the folder out."
                )
            found = self.images(entry)
            files += found
            classes += [name] * len(found)
        self._check_number(folder, sorted(set(classes)), least)
        return ClassFolders(tuple(files), tuple(classes))

    def notes(self) -> tuple[str, ...]:
        """Sentences on what was left out."""
        notes = []
        if self.left_out:
            names = [str(one.relative_to(self.path)) for one in self.left_out[:_SHOWN]]
            more = ", ..." if len(self.left_out) > _SHOWN else ""
            notes.append(
                f"{len(self.left_out)} files that are no images of a class left out: "
                f"{', '.join(names)}{more}"
            )
        if self.unused:
            notes.append(f"images below {self.unused} left out: the test images are those of test")
        return tuple(notes)

    def images(self, folder: Path) -> list[Path]:
        """Images in the folder of a class."""
        found = []
        for entry in self._visible(folder):
            self._refuse_outside(entry)
            if entry.is_dir():
                raise DataError(
                    f"{entry} is a folder within the class {folder.name!r}, and images lie "
                    f"directly in the folder of their class; move them up, or name {folder} if its "
                    f"folders are the classes."
                )
            if not _is_image(entry):
                self.left_out.append(entry)
            elif not entry.is_file():  # opening a pipe would wait for ever
                raise DataError(f"{entry} is no file that can be read; take it out of the folder.")
            else:
                found.append(entry)
        if not found:
            raise DataError(
                f"{folder} has no image ({', '.join(ENDINGS)}), and each class needs one; add "
                f"some, or take the folder out."
            )
        return found

    def _visible(self, folder: Path) -> list[Path]:
        """Entries of a folder by name; hidden ones are passed over."""
        try:
            entries = [one for one in folder.iterdir() if not one.name.startswith(".")]
        except OSError as error:
            raise DataError(f"{folder} cannot be listed: {error.strerror}; check it.") from error
        # The same name may be composed or decomposed, as the file system likes.
        return sorted(entries, key=lambda one: unicodedata.normalize("NFC", one.name))

    def _refuse_outside(self, entry: Path) -> None:
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(self.root):
            raise DataError(
                f"{entry} is a link to {os.path.realpath(entry)}, outside of {self.path}; put the "
                f"images themselves there."
            )

    def _check_number(self, folder: Path, classes: Sequence[str], least: int) -> None:
        """Refuse fewer classes than are needed: none, or one."""
        form = f"{folder}/CLASS/IMAGE.png"
        if not classes:
            raise DataError(
                f"{folder} has no folders of images; each class needs one ({form})."
                + (" A table is named by its file." if least > 1 else "")
            )
        if len(classes) < least:
            raise DataError(
                f"{folder}: all images are of the class {classes[0]!r}, and at least two classes "
                f"are needed; give each a folder ({form})."
            )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _class_name(folder: Path) -> str:
    name = unicodedata.normalize("NFC", folder.name)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{os.fsencode(folder)!r}: the name of this class is no UTF-8 text; rename the folder."
        ) from None
    return name
