# The verbs of the course. `make help` lists them; each says what it does.

PYTHON ?= python3
PORT   ?= 8000

# Absolute, since nbgrader starts programs from other folders; quoted, since a folder's name may hold spaces.
RUN      := PATH="$(CURDIR)/.venv/bin:$$PATH"
# A student's edition has no manuscripts, so there is nothing to release, nor a class to grade.
EDITION  := $(if $(wildcard solutions/*.md),full,student)
FULL     := test $(EDITION) = full || { echo 'This is the student edition: it has no manuscripts to do this from.' >&2; exit 2; }
ifneq ($(and $(filter grade report,$(MAKECMDGOALS)),$(if $(ASSIGNMENT),,none)),)
$(error say which assignment, as in: make $(filter grade report,$(MAKECMDGOALS)) ASSIGNMENT=01_forward)
endif
# Sphinx keeps the pages it read even when one has a fault, and would not name the fault again: forget them then.
BUILD     = $(RUN) jupyter-book build . -W -n --keep-going --builder $(1) || { rm -rf _build/.doctrees; echo 'The book has the faults named above.' >&2; exit 1; }
# Two ideas of where Python is would mix two installations; more threads only slow small networks down.
unexport PYTHONHOME PYTHONPATH
export OMP_NUM_THREADS := 1

.NOTPARALLEL:
.PHONY: all setup chapters book pdf sample test release grade report lab serve bench pictures clean help

all: book $(if $(filter full,$(EDITION)),sample)  ## everything: environment, notebooks, book, a graded sample course
	@echo
	@echo 'The book:           _build/html/index.html   open it in a browser, or: make serve'
	@echo 'The notebooks:      chapters/                make lab'
ifeq ($(EDITION),full)
	@echo 'The sample course:  _build/sample/           make lab COURSE=_build/sample'
else
	@echo 'No sample course is made: this is the student edition.'
endif

setup:  ## .venv, as requirements.txt says; PYTHON=python3.12 chooses another Python
	@command -v '$(PYTHON)' >/dev/null || { echo 'There is no $(PYTHON) here: install Python 3.11 or newer (Debian, Ubuntu: sudo apt-get install python3-venv) and run make again.' >&2; exit 1; }
	@'$(PYTHON)' bootstrap.py

chapters: setup  ## the notebooks, from the manuscripts
	@echo '== chapters: the notebooks, from the manuscripts'
	@$(RUN) python -m publish

book: chapters  ## the HTML book, in _build/html
	@echo '== book: the HTML pages, in _build/html'
	@$(call BUILD,html)

# After the book, with which it shares what Sphinx has read: a page read anew for this alone would stay old in the book.
pdf: book  ## the book as one tagged PDF, _build/recurrence.pdf; Chromium prints it
	@echo '== pdf: the book on one page, then on paper, _build/recurrence.pdf'
	@$(call BUILD,singlehtml)
	@$(RUN) python -m publish.pdf

sample: chapters  ## a sample course, released to an invented class and graded, in _build/sample
	@echo '== sample: a course with an invented class, in _build/sample'
	@$(FULL)
	@$(RUN) python -m autograde sample _build/sample

test: setup  ## every test; FORCE=1 runs them even if nothing has changed since they passed
	@$(RUN) python tests/run.py $(if $(FORCE),--force)

release: chapters  ## course/: the chapters (or ASSIGNMENT=01_forward) released to your class; COURSE=folder
	@$(FULL)
	@$(RUN) python -m autograde release $(ASSIGNMENT) --course '$(or $(COURSE),course)'

grade: setup  ## grade your class: ASSIGNMENT=01_forward [STUDENT='a*'] [SCHEDULER=tcp://host:8786] [NO_SANDBOX=1] [COURSE=folder]
	@$(RUN) python -m autograde grade '$(ASSIGNMENT)' --course '$(or $(COURSE),course)' \
	    $(if $(STUDENT),--student '$(STUDENT)') $(if $(NO_SANDBOX),--no-sandbox) $(if $(SCHEDULER),--scheduler '$(SCHEDULER)')

report: setup  ## a page about the class, with plots: ASSIGNMENT=01_forward [COURSE=folder]
	@$(RUN) python -m autograde report '$(ASSIGNMENT)' --course '$(or $(COURSE),course)'

lab: setup  ## JupyterLab here, or in COURSE=folder; OPTIONS='--no-browser' and the like are handed to it
	@test -d '$(or $(COURSE),.)' || { echo 'There is no folder $(COURSE) here: make release makes course, make sample makes _build/sample.' >&2; exit 2; }
	@echo "== lab: JupyterLab in $(or $(COURSE),this folder); Ctrl+C here ends it"
	@cd '$(or $(COURSE),.)' && $(RUN) jupyter lab $(OPTIONS)

serve: book  ## the book on http://127.0.0.1:8000, or PORT=8001
	@echo '== serve: the book, on this machine only; Ctrl+C ends it'
	@$(RUN) python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT) || { echo 'Is port $(PORT) taken? Choose another: make serve PORT=8001' >&2; exit 1; }

bench: setup  ## how fast and how sharp the checks are, rnncore beside torch.nn; rewrites the book's tables of it
	@echo '== bench: rnncore beside torch.nn and the checks, about six minutes; leave the machine alone meanwhile'
	@$(RUN) python benchmarks/cpu.py
	@$(RUN) python benchmarks/checks.py
	@echo '== bench: every change of one place of the answers and of rnncore.py, about half an hour'
	@$(RUN) python benchmarks/mutants.py

pictures: book  ## the README's and the guides' pictures, of the book, JupyterLab and formgrader
	@$(RUN) python tests/pictures.py

clean:  ## remove _build, which holds only what can be made again
	rm -rf _build

help:  ## this list
	@sed -n 's/^\([a-z]*\):[^#]*##  */\1\t/p' Makefile | expand -t 10
